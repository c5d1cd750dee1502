"""Values and errors as JSON, for the processes of the stages."""

import json
import traceback
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline import errors
from pipeline.errors import PipelineError, causes, error_for_user

_T = TypeVar("_T")


def to_json(value: Any) -> str:
    """A value as JSON on one line. Paths, dataclasses and pydantic models become texts and objects.

    Raises:
        TypeError: it contains something else than these and plain data.
    """
    return json.dumps(value, default=_as_plain_data)


def _as_plain_data(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no plain data: {value!r:.80}")


def of_class(kind: type[_T], value: Any) -> _T:
    """The object of a class that ``to_json`` wrote."""
    # Most starts need not spend the time of this import.
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


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
