"""``python -m benchmarks``."""

import os
import sys

if __name__ == "__main__":
    # It has arguments of its own, and must not import what a machine for JAX alone has not.
    if sys.argv[1:2] == ["gpu"]:
        os.environ["KERAS_BACKEND"] = "jax"
        try:
            from benchmarks.gpu import main
        except ModuleNotFoundError as error:
            if error.name != "jax":
                raise
            sys.exit("benchmarks: JAX is not installed. It is with make setup EXTRA=jax, jax-gpu or jax-tpu.")
        sys.exit(main(sys.argv[2:]))

    # Not here: what is sent to another process must lie in a module that has a name there.
    from benchmarks.suite import main

    sys.exit(main())
