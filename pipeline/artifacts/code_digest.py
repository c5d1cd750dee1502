"""Digests of the behavior of a module's code. They are the same on every supported version of Python.

A digest ignores positions, comments, formatting, docstrings and messages. Messages are functions decorated with
``@message`` and the text of log calls, exceptions, ``refuse`` and ``progress.report``. Arguments with possible effects
count. All arguments of a ``RuntimeError``, ``ConnectionError`` or ``OSError`` count, because ``hardware/mismatch.py``
matches their text. ``ast.unparse`` and ``ast.dump`` are unsuitable, because their output differs between versions.
"""

import ast
import hashlib
import json

# Positions are attributes of a node, not fields, so they need no entry.
_IGNORED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_LOGGERS = frozenset({"_logger", "logger", "logging"})
_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_REFUSING = frozenset({"refuse", "refusal"})
MATCHED_BY_TEXT = frozenset({"RuntimeError", "ConnectionError", "OSError"})


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
