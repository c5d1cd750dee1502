"""Own code: the modules that a user's network or recipe consists of, and their digests (see fingerprint.py).

A module counts where it is local, neither installed nor of the standard library, or where it lies in the same package
as the function that the settings name. Modules are read as text and never imported; what they import by a name that is
made while they run, and files that they read, is not seen. What is installed counts by its version elsewhere or not at
all.
"""

import hashlib
import importlib.util
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

from pipeline.artefacts.modules import Import, read_module_text
from pipeline.installed import find_module, is_local


# Several runs of a sweep share them.
@cache
def read_own_module(module: str, packages: Collection[str]) -> tuple[dict[str, str], tuple[str, ...]] | None:
    """Definition → digest of a module that counts, and all modules that it may import; None: it does not count.

    ``packages`` are those of the functions that the settings name.
    """
    origin = _origin(module)
    if origin is None or not (is_local(origin) or module.partition(".")[0] in packages):
        return None
    content = origin.read_bytes()
    try:
        definitions, imports = read_module_text(content)
    # Compiled, or wrong: whoever imports it says so.
    except (SyntaxError, ValueError):
        return {"<module>": hashlib.sha256(content).hexdigest()[:16]}, ()
    package = module if origin.name == "__init__.py" else module.rpartition(".")[0]
    imported = {name for found in _imported(imports, package) for name in (*_above(found), found)}
    return definitions, tuple(sorted({*imported, *_above(module)}))


def _origin(module: str) -> Path | None:
    try:
        spec = find_module(module)
    # What is loaded may have lost its place, and a name may be none.
    except (ValueError, ImportError):
        return None
    origin = Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return origin if origin and origin.is_file() else None


def _imported(imports: Iterable[Import], package: str) -> Iterator[str]:
    for level, name, names in imports:
        if level is None:
            yield name
            continue
        try:
            module = importlib.util.resolve_name("." * level + name, package or None)
        # Relative, and beyond the top: it cannot be imported.
        except ImportError:
            continue
        yield module
        # Each may be a module or a name in one.
        yield from (f"{module}.{each}" for each in names if each != "*")


def _above(module: str) -> Iterator[str]:
    """The packages that are imported before a module in them."""
    parts = module.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts)))
