"""Validation of untrusted JSON files, which gives a checked object or an error with file and field."""

import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pipeline.errors import DamagedArtifactError

# Far above the depth of any record, far below Python's recursion limit.
MAX_LEVELS = 16
_REMEDY = "Remove the run's folder and retrain it."
# Maximum length of a quoted value.
_MAX_QUOTED = 80

_Checked = TypeVar("_Checked", bound="Untrusted")


def _null_where_not_finite(value: Any) -> Any:
    # A larger integer of JSON does not fit a float.
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("expected a number below 2**63")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: Any, levels: int = MAX_LEVELS) -> Any:
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ValueError("expected numbers below 2**63")
    if isinstance(value, dict | list):
        if levels == 0:
            raise ValueError(f"expected at most {MAX_LEVELS} levels of objects and lists")
        for child in value.values() if isinstance(value, dict) else value:
            _plain(child, levels - 1)
    return value


#: A measured number, null if it was not finite.
Number = Annotated[float | None, BeforeValidator(_null_where_not_finite)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
#: An object with any fields.
Object = Annotated[dict[str, Any], BeforeValidator(_plain)]


def renamed(name: str, former: str) -> Any:
    """Mark a field that files of earlier versions call ``former``."""
    return Field(validation_alias=AliasChoices(name, former))


class Untrusted(BaseModel):
    """Base of classes that are read from files. They are frozen, convert no types and ignore unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", protected_namespaces=())


def read_text(path: Path) -> str:
    """Read the text of a file. Raises DamagedArtifactError if it is missing or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtifactError(message(path, f"expected a UTF-8 text file: {error}")) from error


def checked(
    kind: type[_Checked], text: str, path: Path, *, label: str | None = None, remedy: str = _REMEDY
) -> _Checked:
    """Validate a JSON text as ``kind``. The DamagedArtifactError names ``label``, by default the file's name."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise DamagedArtifactError(message(path, _describe(error, label or path.name), remedy)) from error


def message(path: Path, problem: str, remedy: str = _REMEDY) -> str:
    """Format an error in a file of a run, with the remedy."""
    return f"{path}: {problem}. {remedy}".rstrip()


def _describe(error: ValidationError, label: str) -> str:
    failure = error.errors(include_url=False)[0]
    problem = failure["msg"].removeprefix("Value error, ")
    if failure["type"] == "json_invalid":
        return f"{label} is not valid JSON: {problem.removeprefix('Invalid JSON: ')}"
    fields = [f"entry {field + 1}" if isinstance(field, int) else f'"{field}"' for field in failure["loc"]]
    location = ", ".join([label, *fields])
    if failure["type"] == "missing":
        return f"{', '.join([label, *fields[:-1]])} lacks {fields[-1]}"
    if failure["type"] == "model_type":
        return f"{location}: expected a JSON object, found {type(failure['input']).__name__}"
    if not fields:
        # The message of a validator of the whole object contains field and value.
        return f"{location}, {problem}"
    return f"{location}: {problem.replace('Input should be', 'expected')}, found {failure['input']!r:.{_MAX_QUOTED}}"
