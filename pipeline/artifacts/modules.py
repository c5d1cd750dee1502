"""Definitions and imports of Python modules, read as text.

Parsing all modules takes longer than the rest of a run with nothing to do. The results are therefore cached next to
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

# Maximum number of cached modules, many times those of the project.
_MAX_CACHED = 2000
# "module:name", as in registries, which import a module at its first use.
_LAZY = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


# Stages, and the runs of a sweep, share most of their modules.
@cache
def read_module(module: str, packages: Set[str] = frozenset()) -> tuple[dict[str, str], list[str]] | None:
    """Digests of a module's definitions, and the names of all modules that it may import.

    A module of ``pipeline`` counts, and so does a user module that is local or in one of the ``packages`` of the
    settings. For any other module, the result is None. Imports by a computed name are not detected.
    """
    top = module.partition(".")[0]
    path = module_path(module)
    # The file of a loaded module may have been removed.
    if path is None or not path.is_file() or not (top == "pipeline" or is_local(path) or top in packages):
        return None
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    content = path.read_bytes()
    digest, results = hashlib.sha256(b"\0".join([_version(), package.encode(), content])).hexdigest(), _results()
    if digest not in results:
        try:
            results[digest] = _read(ast.parse(content), package)
        # A compiled module, or a syntax error, which the import reports.
        except (SyntaxError, ValueError):
            return {"<module>": hashlib.sha256(content).hexdigest()[:16]}, []
    definitions, imports = results[digest]
    if top == "pipeline":
        return definitions | _template_digests(path), imports
    return definitions, [*_with_packages(module), *imports]


def module_path(module: str) -> Path | None:
    """Path of a module's file. None if there is no such file."""
    # The name may be invalid, or that of a function.
    with contextlib.suppress(ValueError, ImportError):
        spec = find_module(module)
        return Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return None


def _read(tree: ast.Module, package: str) -> list:
    """Definitions and imports of a module. For modules of ``pipeline``, only imports of ``pipeline`` count."""
    imports = {name for module in _imported(tree, package) for name in _with_packages(module)}
    is_user_code = not f"{package}.".startswith("pipeline.")
    counted = [name for name in sorted(imports) if is_user_code or name.startswith("pipeline.")]
    return [code_digest.definition_digests(tree), counted]


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the names of all modules that any statement may import."""
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
    """Yield the module and its parent packages."""
    names = module.split(".")
    yield from (".".join(names[:end]) for end in range(1, len(names) + 1))


def _template_digests(path: Path) -> dict[str, str]:
    """Digests of a package's templates, which shape its output as code does."""
    templates = sorted(path.parent.glob("templates/*")) if path.name == "__init__.py" else []
    return {f"templates/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in templates}


@cache
def _version() -> bytes:
    """Digest of the code that reads modules, because another version may give other results."""
    sources = (Path(__file__), Path(code_digest.__file__))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).digest()


def _file() -> Path:
    return Path(importlib.util.cache_from_source(__file__)).with_name("modules.json")


@cache
def _results() -> dict[str, list]:
    """Cached results of ``_read``, by the digest of the text."""
    results = {}
    # An invalid file is ignored.
    with contextlib.suppress(OSError, ValueError, TypeError, RecursionError):
        entries = dict(json.loads(_file().read_bytes())).items()
        results = {digest: entry for digest, entry in entries if isinstance(entry, list) and len(entry) == 2}
    atexit.register(_write, results, len(results))
    return results


def _write(results: dict[str, list], num_cached: int) -> None:
    """Write the cache atomically, unless Python writes no bytecode."""
    if len(results) == num_cached or sys.dont_write_bytecode:
        return
    file = _file()
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        temporary.write_text(json.dumps(dict(list(results.items())[-_MAX_CACHED:])))
        os.replace(temporary, file)
