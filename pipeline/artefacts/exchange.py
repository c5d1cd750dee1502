"""Exchange: two folders swap their names in one step, so that there is no moment in which one of the names is free.

Beside the data's way; what manifest.publishing uses. Python has no function for it. The C library of Linux has (glibc
since 2.28), the kernel since 3.15, and most file systems, but not every network's.
"""

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

# From fcntl.h and linux/fs.h.
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders that are there; False, and nothing changed, where that cannot be done in one step."""
    renameat2 = _renameat2()
    if renameat2 is None:
        return False
    return renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return function
