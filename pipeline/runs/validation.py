"""Validation of JSON files from anywhere: a checked object, or an error with file and field."""

import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pipeline.errors import DamagedArtifactError

# Far more than any record has, far less than Python's recursion limit.
MOST_LEVELS = 16
_REMEDY = "Remove the run's folder and train it again."
# The longest quotation of a refused value.
_QUOTED = 80

_Checked = TypeVar("_Checked", bound="Untrusted")


def _null_where_not_finite(value: Any) -> Any:
    # A larger integer of JSON does not fit a float.
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("expected a number below 2**63")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any, levels: int = MOST_LEVELS) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("expected numbers below 2**63")
    if isinstance(value, dict | list):
        if levels == 0:
            raise ValueError(f"expected at most {MOST_LEVELS} levels of objects and lists")
        for child in value.values() if isinstance(value, dict) else value:
            _plain(child, levels - 1)
    return value


#: A measured number, null if it was not finite.
Number = Annotated[float | None, BeforeValidator(_null_where_not_finite)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
#: An object with any fields.
Object = Annotated[dict[str, Any], BeforeValidator(_plain)]


def renamed(name: str, former: str) -> Any:
    """Marks a field that files of earlier versions call ``former``."""
    return Field(validation_alias=AliasChoices(name, former))


class Untrusted(BaseModel):
    """Base of classes that are read from files: frozen, without type conversion, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", protected_namespaces=())


def read_text(path: Path) -> str:
    """The text of a file. Raises DamagedArtifactError if it is missing or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtifactError(message(path, f"expected a UTF-8 text file: {error}")) from error


def checked(
    kind: type[_Checked], text: str, path: Path, *, place: str | None = None, remedy: str = _REMEDY
) -> _Checked:
    """The object of ``kind`` in a JSON text. ``place`` names it in the message, by default the file's name.

    Raises:
        DamagedArtifactError: it is not JSON, not an object, or a field is missing or of another type or value.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise DamagedArtifactError(message(path, _in_words(error, place or path.name), remedy)) from error


def message(path: Path, problem: str, remedy: str = _REMEDY) -> str:
    """An error in a file of a run, with the remedy."""
    return f"{path}: {problem}. {remedy}".rstrip()


def _in_words(error: ValidationError, place: str) -> str:
    first = error.errors(include_url=False)[0]
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return f"{place} is not valid JSON: {problem.removeprefix('Invalid JSON: ')}"
    parts = [f"entry {part + 1}" if isinstance(part, int) else f'"{part}"' for part in first["loc"]]
    where = ", ".join([place, *parts])
    if first["type"] == "missing":
        return f"{', '.join([place, *parts[:-1]])} lacks {parts[-1]}"
    if first["type"] == "model_type":
        return f"{where}: expected a JSON object, found {type(first['input']).__name__}"
    if not parts:
        # The message of a validator of the whole object contains field and value.
        return f"{where}, {problem}"
    return f"{where}: {problem.replace('Input should be', 'expected')}, found {first['input']!r:.{_QUOTED}}"
