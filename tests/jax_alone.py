"""Runs ``-c code`` or ``-m module`` as on a machine for JAX alone: what that has not cannot be imported."""

import runpy
import sys

_ABSENT = {"tensorflow", "tensorflow_datasets", "apache_beam", "luigi", "pydantic"}


class _Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in _ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


if __name__ == "__main__":
    sys.meta_path.insert(0, _Absent())
    # The project's folder, where Python puts it for either option.
    sys.path[0] = ""
    _, option, what, *arguments = sys.argv
    sys.argv[:] = [option, *arguments]
    if option == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})
