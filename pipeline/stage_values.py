"""Values and errors as JSON data, for the processes of the stages."""

import pkgutil
import traceback
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from pipeline import errors
from pipeline.errors import PipelineError, causes, error_for_user


def encode(value: Any) -> Any:
    """The value as JSON data."""
    if isinstance(value, Path):
        return {"path": str(value)}
    if isinstance(value, Mapping):
        if wrong := [name for name in value if not isinstance(name, str)]:
            raise TypeError(f"names of values are texts, not {wrong[0]!r}")
        return {"map": {name: encode(one) for name, one in value.items()}}
    parts = None
    if is_dataclass(value):
        parts = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
    elif hasattr(value, "model_dump"):
        parts = value.model_dump(mode="json")
    if parts is not None:
        return {"class": f"{type(value).__module__}:{type(value).__qualname__}", **encode(parts)}
    if isinstance(value, tuple):
        return {"tuple": [encode(one) for one in value]}
    return [encode(one) for one in value] if isinstance(value, list) else value


def decode(value: Any) -> Any:
    """The value that ``encode`` was given."""
    if isinstance(value, list):
        return [decode(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if "path" in value:
        return Path(value["path"])
    if "tuple" in value:
        return tuple(decode(value["tuple"]))
    parts = {name: decode(one) for name, one in value["map"].items()}
    return _class(value["class"])(**parts) if "class" in value else parts


def _class(name: str) -> type:
    """A class of ours that ``encode`` can name. Data of others must not call anything else."""
    kind = pkgutil.resolve_name(name) if name.startswith("pipeline.") else None
    is_known = is_dataclass(kind) or hasattr(kind, "model_dump")
    if not isinstance(kind, type) or not is_known or not kind.__module__.startswith("pipeline."):
        raise ValueError(f"{name} is no class of values")
    return kind


def describe_error(error: BaseException) -> dict[str, Any]:
    """An error as JSON data."""
    if known := error_for_user(error):
        kind = next(kind.__name__ for kind in type(known).__mro__ if hasattr(errors, kind.__name__))
        return {"kind": kind, "message": str(known), "mismatch": getattr(known, "mismatch", None)}
    chain = []
    for one in causes(error):
        system = [one.errno, one.strerror, one.filename] if isinstance(one, OSError) else [None] * 3
        chain.append([f"{type(one).__name__}: {one}", *system])
    return {"chain": chain, "traceback": "".join(traceback.format_exception(error)).rstrip()}


def rebuild_error(value: Mapping[str, Any]) -> Exception:
    """The error that ``describe_error`` was given, with its causes."""
    if "kind" in value:
        kind: type[PipelineError] = getattr(errors, value["kind"])
        return kind(value["message"], value["mismatch"]) if value["mismatch"] else kind(value["message"])
    error: Exception | None = None
    for message, errno, strerror, filename in reversed(value["chain"]):
        cause, error = error, OSError(errno, strerror, filename) if errno else RuntimeError(message)
        error.__cause__ = cause
    error.add_note(f"In the process of the stage:\n{value['traceback']}")
    return error
