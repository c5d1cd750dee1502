"""Digests of the behavior of Python modules, which are read as text, and the imports of each.

Parsing all modules takes longer than the rest of a run with nothing to do. The results are therefore cached next to
Python's bytecode, by the sha256 of a module's text. They are the same on every supported version of Python.

A digest ignores positions, comments, formatting, docstrings and messages. Messages are functions decorated with
``@message`` and the text of log calls, exceptions, ``refuse`` and ``progress.report``. Arguments with possible effects
count. All arguments of a ``RuntimeError``, ``ConnectionError`` or ``OSError`` count, because ``hardware/runtime.py``
matches their text. ``ast.unparse`` and ``ast.dump`` are unsuitable, because their output differs between versions.
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

from pipeline.optional_packages import find_module, is_local

# Positions are attributes of a node, not fields, so they need no entry.
_IGNORED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_LOGGERS = frozenset({"_logger", "logger", "logging"})
_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_REFUSING = frozenset({"refuse", "refusal"})
MATCHED_BY_TEXT = frozenset({"RuntimeError", "ConnectionError", "OSError"})
# Maximum number of cached modules, many times those of the project.
_MAX_CACHED = 2000
# "module:name", as in registries, which import a module at its first use.
_LAZY = re.compile(r"[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*")


# Stages, and the runs of a sweep, share most of their modules.
@cache
def read_module(module: str, packages: Set[str] = frozenset()) -> tuple[dict[str, str], list[str]] | None:
    """Digests of a module's definitions, and the names of all modules that it may import.

    A module of ``pipeline`` counts, and so does a user module that is local or in one of the ``packages`` of the
    settings. For any other module, the result is None. Imports by a computed name are not detected. For modules of
    ``pipeline``, only imports of ``pipeline`` count.
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
            tree = ast.parse(content)
        # A compiled module, or a syntax error, which the import reports.
        except (SyntaxError, ValueError):
            return {"<module>": hashlib.sha256(content).hexdigest()[:16]}, []
        names = {name for imported in _imported(tree, package) for name in _with_packages(imported)}
        counted = [name for name in sorted(names) if top != "pipeline" or name.startswith("pipeline.")]
        results[digest] = [definition_digests(tree), counted]
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


def definition_digests(module: ast.Module) -> dict[str, str]:
    """Digest of each top-level function and class. ``"<module>"`` is the digest of all other statements."""
    digests, statements = {}, []
    for node in module.body:
        if is_message(node):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # If a name is defined twice, both definitions have effects.
            digests[node.name] = _digest([digests.get(node.name), _canonical(node)])
        else:
            statements.append(node)
    return {"<module>": _digest(_canonical(statements)), **digests}


def is_message(node: object) -> bool:
    """Whether a node of a syntax tree defines a function that is decorated with ``@message``."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(decorator, ast.Name) and decorator.id == "message" for decorator in node.decorator_list
    )


def _canonical(node: object, *, in_message: bool = False, in_log: bool = False) -> object:
    """Convert a subtree to JSON data, without the string literals of a message or a log statement.

    Inside a log statement, the text in the arguments of a nested call counts, because the call may have effects.
    """
    if isinstance(node, list):
        return [_canonical(item, in_message=in_message, in_log=in_log) for item in node if not _has_no_effect(item)]
    if not isinstance(node, ast.AST):
        return [type(node).__name__, ascii(node)]
    if (in_message or in_log) and (isinstance(node, ast.JoinedStr) or _is_text(node)):
        values = [piece.value for piece in getattr(node, "values", ()) if isinstance(piece, ast.FormattedValue)]
        return ["text", *(_canonical(value, in_message=in_message, in_log=in_log) for value in values if _acts(value))]
    if isinstance(node, ast.Expr) and _takes_messages(node.value):
        arguments = [*node.value.args, *(keyword.value for keyword in node.value.keywords)]
        return ["Log", *(_canonical(argument, in_log=True) for argument in arguments if _acts(argument))]
    if isinstance(node, ast.Constant):
        return ["Constant", type(node.value).__name__, ascii(node.value)]
    fields = {name: value for name, value in ast.iter_fields(node) if name not in _IGNORED and not _is_empty(value)}
    if isinstance(node, ast.JoinedStr):
        fields["values"] = _joined(node.values)
    message_fields = _message_fields(node)
    in_log = in_log and not isinstance(node, ast.Call)
    plain = {
        name: _canonical(value, in_message=in_message or name in message_fields, in_log=in_log)
        for name, value in fields.items()
    }
    return [type(node).__name__, {name: value for name, value in plain.items() if value != []}]


def _has_no_effect(node: object) -> bool:
    """Whether no result can depend on a statement."""
    if not isinstance(node, ast.Expr):
        return isinstance(node, ast.Pass) or is_message(node)
    is_log = _takes_messages(node.value) and not any(map(_acts, ast.iter_child_nodes(node.value)))
    return is_log or _is_text(node.value)


def _takes_messages(call: ast.expr) -> bool:
    function = call.func if isinstance(call, ast.Call) else None
    if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
        return False
    owner, name = function.value.id, function.attr
    return (owner in _LOGGERS and name in _LEVELS) or (owner, name) == ("progress", "report")


def _acts(node: ast.AST) -> bool:
    """Whether evaluating an expression may have side effects."""
    acting = ast.Call | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom
    return any(isinstance(child, acting) for child in ast.walk(node))


def _message_fields(node: ast.AST) -> frozenset[str]:
    """Names of the node's fields that contain a message."""
    match node:
        case ast.Raise(exc=ast.Call(func=function)) if getattr(function, "id", "") not in MATCHED_BY_TEXT:
            return frozenset({"exc"})
        case ast.Return(value=ast.Call(func=ast.Name(id=name))) if name.endswith("Error"):
            return frozenset() if name in MATCHED_BY_TEXT else frozenset({"value"})
        # A function, or a method of a source.
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name.lstrip("_") in _REFUSING:
            return frozenset({"args", "keywords"})
    return frozenset()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_empty(value: object) -> bool:
    """Whether a field is None or an empty format, as in ``f"{x:}"``."""
    return value is None or (isinstance(value, ast.JoinedStr) and not _joined(value.values))


def _joined(pieces: list[ast.expr]) -> list[ast.expr]:
    """Merge adjacent texts of an f-string and drop empty ones, because versions of Python split them differently."""
    joined: list[ast.expr] = []
    for piece in pieces:
        if _is_text(piece) and joined and _is_text(joined[-1]):
            joined[-1] = ast.Constant(joined[-1].value + piece.value)
        elif not _is_text(piece) or piece.value:
            joined.append(piece)
    return joined


def _digest(plain: object) -> str:
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


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
    """Digest of this file, because another version may give other results."""
    return hashlib.sha256(Path(__file__).read_bytes()).digest()


def _file() -> Path:
    return Path(importlib.util.cache_from_source(__file__)).with_name("modules.json")


@cache
def _results() -> dict[str, list]:
    """Cached definitions and imports of modules, by the digest of the text."""
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
