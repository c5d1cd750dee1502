"""``python -m benchmarks``."""

import sys

# Not here: what is sent to another process must lie in a module that has a name there.
from benchmarks.suite import main

if __name__ == "__main__":
    sys.exit(main())
