"""Reads Python modules as text: the digests of their definitions, and their imports.

Parsing all modules takes longer than the rest of a run with nothing to do. The results are therefore cached beside
Python's bytecode, by the sha256 of a module's text.
"""

import ast
import atexit
import contextlib
import hashlib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator, Set
from functools import cache
from pathlib import Path

from pipeline.artifacts import code_digest
from pipeline.optional_packages import find_module, is_local

# Many times the modules of the project. The file keeps the latest.
_MOST = 2000
# "module:name", as registries have it that import a module when it is used.
_LAZY = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


# Stages, and the runs of a sweep, share most of their modules.
@cache
def read_module(module: str, packages: Set[str] = frozenset()) -> tuple[dict[str, str], list[str]] | None:
    """Definition → digest of a module, and all modules that it may import; None if it does not count.

    A module of ``pipeline`` counts. So does a user module that is local (not installed, not of the standard library) or
    in one of the ``packages`` that the settings name. Imports by a computed name and files that it reads are not seen.
    """
    top = module.partition(".")[0]
    path = module_path(module)
    # A loaded module may have lost its file.
    if path is None or not path.is_file() or not (top == "pipeline" or is_local(path) or top in packages):
        return None
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    content = path.read_bytes()
    digest, results = hashlib.sha256(b"\0".join([_version(), package.encode(), content])).hexdigest(), _results()
    if digest not in results:
        try:
            results[digest] = _read(ast.parse(content), package)
        # Compiled, or wrong: its import reports that.
        except (SyntaxError, ValueError):
            return {"<module>": hashlib.sha256(content).hexdigest()[:16]}, []
    definitions, imports = results[digest]
    if top == "pipeline":
        return definitions | _template_digests(path), imports
    return definitions, [*_with_packages(module), *imports]


def module_path(module: str) -> Path | None:
    """The file of a module; None if it has none, or if the name is that of a function in a module."""
    # A name may be invalid.
    with contextlib.suppress(ValueError, ImportError):
        spec = find_module(module)
        return Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return None


def _read(tree: ast.Module, package: str) -> list:
    """The definitions and imports of a module. Of one of ours, other packages do not count."""
    imports = {name for module in _imported(tree, package) for name in _with_packages(module)}
    is_ours = f"{package}.".startswith("pipeline.")
    counted = [name for name in sorted(imports) if not is_ours or name.startswith("pipeline.")]
    return [code_digest.definition_digests(tree), counted]


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Every module that is imported anywhere, and every name that may be one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # A relative import beyond the top cannot be imported.
            with contextlib.suppress(ImportError):
                module = importlib.util.resolve_name("." * node.level + (node.module or ""), package or None)
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names if alias.name != "*")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _LAZY.fullmatch(node.value):
            yield node.value.partition(":")[0]


def _with_packages(module: str) -> Iterator[str]:
    """The module, and the packages that are imported before it."""
    parts = module.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _template_digests(path: Path) -> dict[str, str]:
    """A package's templates are code too: they shape what it writes."""
    templates = sorted(path.parent.glob("templates/*")) if path.name == "__init__.py" else []
    return {f"templates/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in templates}


@cache
def _version() -> bytes:
    """Digest of the code that reads modules: its results are not those of another version."""
    own = (Path(__file__), Path(code_digest.__file__))
    return hashlib.sha256(b"".join(path.read_bytes() for path in own)).digest()


def _file() -> Path:
    return Path(importlib.util.cache_from_source(__file__)).with_name("modules.json")


@cache
def _results() -> dict[str, list]:
    """Digest of a text → what ``_read`` returned for it in this and earlier processes."""
    results = {}
    # A file of another shape is ignored.
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        entries = dict(json.loads(_file().read_bytes())).items()
        results = {digest: read for digest, read in entries if isinstance(read, list) and len(read) == 2}
    atexit.register(_keep, results, len(results))
    return results


def _keep(results: dict[str, list], num_known: int) -> None:
    """Write the results, if Python would write bytecode; atomically, as another process may read or write them."""
    if len(results) == num_known or sys.dont_write_bytecode:
        return
    file = _file()
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        try:
            temporary.write_text(json.dumps(dict(list(results.items())[-_MOST:])))
            os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
