"""Modules: what the text of a module says of itself, its definitions' digests and its imports.

To parse and digest all modules of the project takes longer than everything else a start does that finds all fresh. So
what was read is remembered by the content's sha256, beside Python's bytecode and by its rules: a file that is missing,
damaged, or of another version of the code here or in ``syntax.py`` is made anew, and nothing depends on it but time.
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
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipeline.artefacts import syntax

# More than the project has many times over: what was edited away goes when there are so many.
_MOST = 2000
# "module:name" of ours, as registries have it that import a module when it is used.
_LAZY = re.compile(r"pipeline(\.\w+)+:\w+")


class Import(NamedTuple):
    """``import module``, where level is None, or ``from module import names``, as deep as ``level`` dots say."""

    level: int | None
    module: str
    names: tuple[str, ...]


class Module(NamedTuple):
    """Top-level definition → digest (see ``syntax.py``), and every import wherever it stands."""

    definitions: dict[str, str]
    imports: tuple[Import, ...]


def read_module_text(content: bytes) -> Module:
    """What this text of a module says.

    Raises:
        SyntaxError, ValueError: it is not Python.
    """
    known, digest = _memory(), hashlib.sha256(content).hexdigest()
    if digest not in known.modules:
        known.modules[digest] = _read(ast.parse(content))
        known.is_new = True
    known.used.add(digest)
    return known.modules[digest]


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
        """Write what is remembered, where Python would write bytecode."""
        if not self.is_new or sys.dont_write_bytecode:
            return
        modules = self.modules
        if len(modules) > _MOST:
            modules = {digest: modules[digest] for digest in self.used}
        # Whole or not at all: another process may read it, or write it too.
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
