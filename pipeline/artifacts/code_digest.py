"""Digests of what a module's code does, the same on every Python that the project supports.

Positions, comments, formatting and messages to people are ignored. The digest does not cover docstrings, functions
decorated with ``@message``, text of log calls and of ``progress.tell``, and text in the arguments of an exception or of
``refuse``. Arguments that may have effects count, and so does text that an earlier statement assembled. All arguments
of a ``RuntimeError``, ``ConnectionError`` or ``OSError`` count, as ``hardware/mismatch.py`` matches their text. The
output of ``ast.unparse`` and ``ast.dump`` differs between versions of Python, so that it is no basis for a digest.
"""

import ast
import hashlib
import json

# Positions are attributes, not fields, and so are never seen.
_IGNORED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_LOGGERS = frozenset({"_logger", "logger", "logging"})
_LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})
_REFUSING = frozenset({"refuse", "refusal"})
MATCHED_BY_TEXT = frozenset({"RuntimeError", "ConnectionError", "OSError"})


def definition_digests(module: ast.Module) -> dict[str, str]:
    """Top-level function or class → digest; all other statements are digested together under ``"<module>"``."""
    digests, rest = {}, []
    for node in module.body:
        if is_message(node):
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # Of two definitions under one name both shape what the module does.
            digests[node.name] = _digest([digests.get(node.name), _canonical(node)])
        else:
            rest.append(node)
    return {"<module>": _digest(_canonical(rest)), **digests}


def is_message(node: object) -> bool:
    """Whether a node of a syntax tree defines a function that is decorated with ``@message``."""
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(decorator, ast.Name) and decorator.id == "message" for decorator in node.decorator_list
    )


def _canonical(node: object, *, in_message: bool = False, in_log: bool = False) -> object:
    """A part of a syntax tree as plain JSON data, without the text of string literals in a message or a log statement.

    In a log statement what a call is given decides what it does, and its texts count.
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
    """Whether a statement is one that nothing computed can depend on."""
    if isinstance(node, ast.Pass) or is_message(node):
        return True
    if not isinstance(node, ast.Expr):
        return False
    return _is_text(node.value) or (
        _takes_messages(node.value) and not any(map(_acts, ast.iter_child_nodes(node.value)))
    )


def _takes_messages(call: ast.expr) -> bool:
    function = call.func if isinstance(call, ast.Call) else None
    if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
        return False
    owner, name = function.value.id, function.attr
    return (owner in _LOGGERS and name in _LEVELS) or (owner, name) == ("progress", "tell")


def _acts(node: ast.AST) -> bool:
    """Whether evaluating an expression may do more than give its value."""
    acting = ast.Call | ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom
    return any(isinstance(part, acting) for part in ast.walk(node))


def _message_fields(node: ast.AST) -> frozenset[str]:
    """The names of a node's fields that hold a message."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        name = node.exc.func.id if isinstance(node.exc.func, ast.Name) else ""
        return frozenset() if name in MATCHED_BY_TEXT else frozenset({"exc"})
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        name = node.value.func.id
        return frozenset({"value"}) if name.endswith("Error") and name not in MATCHED_BY_TEXT else frozenset()
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.lstrip("_") in _REFUSING:
        return frozenset({"args", "keywords"})
    return frozenset()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_empty(value: object) -> bool:
    """Whether a field holds nothing, be it None or the empty format of ``f"{x:}"``."""
    return value is None or (isinstance(value, ast.JoinedStr) and not _joined(value.values))


def _joined(pieces: list[ast.expr]) -> list[ast.expr]:
    """The pieces of an f-string, adjacent texts as one and no empty ones: versions cut them differently."""
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
