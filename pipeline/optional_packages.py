"""Finds modules, their names and installed versions without importing them.

A setting may name user code, or a class of a library that takes seconds to import.
"""

import ast
import contextlib
import importlib.machinery
import importlib.metadata
import importlib.util
import symtable
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

DISTRIBUTION = "tensorcraft-pipeline"
# Extras that a target of make installs in a clone. The empty extra is the base.
_BY_MAKE = {
    "": "make clean setup",
    "dask": "make engine ENGINE=dask",
    **{extra: f"make setup EXTRA={extra}" for extra in ("gpu", "jax", "jax-gpu", "jax-tpu")},
}
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PACKAGES = frozenset({"site-packages", "dist-packages"})


@contextlib.contextmanager
def hidden(*modules: str) -> Iterator[None]:
    """Context in which modules cannot be imported. Libraries that use them only if they exist import faster."""
    names = {*modules} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(names))
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


def installed_version(distribution: str) -> str | None:
    """Version of a distribution. None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def install_command(extra: str = "") -> str:
    """Command that installs the packages of an extra, for a clone or for the installed wheel."""
    if is_local(Path(__file__)):
        return _BY_MAKE.get(extra) or f"pip install '.[{extra}]'"
    # No upgrade: pip takes the installed wheel, which need not be in the package index.
    return f"pip install '{DISTRIBUTION}[{extra}]'" if extra else f"pip install {DISTRIBUTION}"


def is_local(path: Path) -> bool:
    """Whether a file is neither in an installed distribution nor in the standard library."""
    path = path.resolve()
    return not _PACKAGES & set(path.parts) and not any(path.is_relative_to(folder) for folder in _INSTALLED)


def find_module(module: str) -> importlib.machinery.ModuleSpec | None:
    """Find the file of a module without importing its packages. None if it does not exist."""
    package = module.rpartition(".")[0]
    if not package:
        return importlib.util.find_spec(module)
    spec = getattr(sys.modules.get(package), "__spec__", None) or find_module(package)
    return spec and importlib.machinery.PathFinder.find_spec(module, spec.submodule_search_locations or [])


def has_name(module: str, name: str) -> bool:
    """Whether the source of a module binds a name. True if it may do so without stating it."""
    spec = find_module(module)
    if spec is None:
        return False
    # The source of a compiled module may be in the same folder.
    origin = Path(spec.origin or "nowhere")
    source = origin.with_name(f"{origin.name.partition('.')[0]}.py")
    if not source.is_file():
        return True
    code = source.read_bytes()
    imports = (node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom))
    if any(node.names[0].name == "*" for node in imports):
        return True
    symbols = symtable.symtable(code, str(source), "exec").get_symbols()
    # A module with __getattr__ may provide any name.
    return any(symbol.is_local() and symbol.get_name() in (name, "__getattr__") for symbol in symbols)
