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
from collections.abc import Iterable, Iterator, Set
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipeline.artefacts import syntax
from pipeline.installed import find_module, is_local

# Many times the modules of the project. Above it, results that this process did not use are removed.
_MOST = 2000
# "module:name", as registries have it that import a module when it is used.
_LAZY = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


class Import(NamedTuple):
    """``import module`` if level is None, else ``from module import names`` with that many leading dots."""

    level: int | None
    module: str
    names: tuple[str, ...]


class Module(NamedTuple):
    """Top-level definition → digest (see ``syntax.py``), and every import wherever it stands."""

    definitions: dict[str, str]
    imports: tuple[Import, ...]


def read_module_text(content: bytes) -> Module:
    """The definitions and imports of a module's text.

    Raises:
        SyntaxError, ValueError: it is not Python.
    """
    known, digest = _memory(), hashlib.sha256(content).hexdigest()
    if digest not in known.modules:
        known.modules[digest] = _read(ast.parse(content))
        known.is_new = True
    known.used.add(digest)
    return known.modules[digest]


# Stages, and the runs of a sweep, share most of their modules.
@cache
def read_module(module: str, packages: Set[str] = frozenset()) -> tuple[dict[str, str], tuple[str, ...]] | None:
    """Definition → digest of a module, and all modules that it may import; None if it does not count.

    A module of ``pipeline`` counts. So does a user module that is local (not installed, not of the standard library) or
    in one of the ``packages`` that the settings name. Imports by a computed name and files that it reads are not seen.
    """
    is_ours = module.partition(".")[0] == "pipeline"
    origin = module_path(module) if is_ours else _origin(module)
    if origin is None or not (is_ours or is_local(origin) or module.partition(".")[0] in packages):
        return None
    # An import may name a function in a module.
    if not origin.is_file():
        return None
    content = origin.read_bytes()
    try:
        definitions, imports = read_module_text(content)
    # Compiled, or wrong: its import reports that.
    except (SyntaxError, ValueError):
        return {"<module>": hashlib.sha256(content).hexdigest()[:16]}, ()
    package = module if origin.name == "__init__.py" else module.rpartition(".")[0]
    imported = {name for found in _imported(imports, package) for name in (*_above(found), found)}
    if is_ours:
        return definitions | _template_digests(origin), tuple(name for name in imported if name.startswith("pipeline."))
    return definitions, tuple(sorted({*imported, *_above(module)}))


def _read(tree: ast.Module) -> Module:
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.extend(Import(None, alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports.append(Import(node.level, node.module or "", tuple(alias.name for alias in node.names)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _LAZY.fullmatch(node.value):
            imports.append(Import(None, node.value.partition(":")[0], ()))
    return Module(syntax.definition_digests(tree), tuple(imports))


def _origin(module: str) -> Path | None:
    # A loaded module may have lost its file, and a name may be invalid.
    with contextlib.suppress(ValueError, ImportError):
        spec = find_module(module)
        return Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return None


def module_path(module: str) -> Path:
    """The file of a module of ours; much faster than ``find_module``."""
    package, *names = module.split(".")
    base = _package_folder(package).joinpath(*names)
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


@cache
def _package_folder(package: str) -> Path:
    return Path(importlib.util.find_spec(package).origin).parent


def _template_digests(path: Path) -> dict[str, str]:
    """A package's templates are code too: they shape what it writes."""
    templates = sorted(path.parent.glob("templates/*")) if path.name == "__init__.py" else []
    return {f"templates/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in templates}


def _imported(imports: Iterable[Import], package: str) -> Iterator[str]:
    for level, name, names in imports:
        if level is None:
            yield name
            continue
        # A relative import beyond the top cannot be imported.
        with contextlib.suppress(ImportError):
            module = importlib.util.resolve_name("." * level + name, package or None)
            yield module
            # Each may be a module or a name in one.
            yield from (f"{module}.{each}" for each in names if each != "*")


def _above(module: str) -> Iterator[str]:
    """The packages that are imported before a module in them."""
    parts = module.split(".")
    yield from (".".join(parts[:end]) for end in range(1, len(parts)))


class _Memory:
    def __init__(self, file: Path) -> None:
        self.file = file
        own = (Path(__file__), Path(syntax.__file__))
        self.version = hashlib.sha256(b"".join(path.read_bytes() for path in own)).hexdigest()
        self.modules: dict[str, Module] = {}
        self.used: set[str] = set()
        self.is_new = False
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            kept = json.loads(file.read_bytes())
            if kept["version"] == self.version:
                self.modules = {
                    digest: Module(definitions, tuple(Import(*parts[:2], tuple(parts[2])) for parts in imports))
                    for digest, (definitions, imports) in kept["modules"].items()
                }

    def keep(self) -> None:
        """Write the results, if Python would write bytecode; atomically, as another process may read or write them."""
        if not self.is_new or sys.dont_write_bytecode:
            return
        is_full = len(self.modules) > _MOST
        modules = {digest: one for digest, one in self.modules.items() if not is_full or digest in self.used}
        temporary = self.file.with_name(f"{self.file.name}.{os.getpid()}")
        with contextlib.suppress(OSError):
            self.file.parent.mkdir(exist_ok=True)
            try:
                temporary.write_text(json.dumps({"version": self.version, "modules": modules}))
                os.replace(temporary, self.file)
            finally:
                temporary.unlink(missing_ok=True)


@cache
def _memory() -> _Memory:
    memory = _Memory(Path(importlib.util.cache_from_source(__file__)).with_name("modules.json"))
    atexit.register(memory.keep)
    return memory
