"""Find modules, their names and installed versions without importing them.

A setting may name a class of a library that takes seconds to import, or a function of the user's own.
"""

import ast
import importlib.machinery
import importlib.metadata
import importlib.util
import sysconfig
from collections.abc import Iterator, Set
from pathlib import Path

_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PACKAGES = frozenset({"site-packages", "dist-packages"})


def is_local(path: Path) -> bool:
    """Whether a file of code is neither part of an installed distribution nor of the standard library.

    One that is installed in place, to be edited, is local.
    """
    path = path.resolve()
    return not _PACKAGES & set(path.parts) and not any(path.is_relative_to(folder) for folder in _INSTALLED)


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def find_module(module: str) -> importlib.machinery.ModuleSpec | None:
    """Where a module would be imported from; none is imported for it, not even the packages it lies in."""
    first, *below = module.split(".")
    spec, path = importlib.util.find_spec(first), first
    for name in below:
        path = f"{path}.{name}"
        spec = spec and importlib.machinery.PathFinder.find_spec(path, spec.submodule_search_locations or [])
    return spec


def has_name(module: str, name: str) -> bool:
    """Whether a module that can be found binds a name, as far as its source tells; where that does not, it may."""
    return _has_name(module, name, frozenset())


def _has_name(module: str, name: str, seen: Set[str]) -> bool:
    spec = find_module(module)
    if module in seen or spec is None:
        return False
    # Of a compiled module the source lies beside it, or nowhere.
    origin = Path(spec.origin or "nowhere")
    source = origin.with_name(f"{origin.name.partition('.')[0]}.py")
    if not source.is_file():
        return True
    bound, stars = set(), []
    for node in _statements(ast.parse(source.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            package = module if spec.submodule_search_locations else module.rpartition(".")[0]
            stars.append(importlib.util.resolve_name("." * node.level + (node.module or ""), package))
        else:
            bound.update(_bound(node))
    # A module's own __getattr__ makes names when they are asked for.
    return bool(bound & {name, "__getattr__"}) or any(_has_name(star, name, {*seen, module}) for star in stars)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when the module is imported, and not what functions and classes hold."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _statements(child)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
