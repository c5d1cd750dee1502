"""Fields: what a run's folder says is checked by name and type, once, so that everything after may rely on it."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any

from pipeline.errors import DamagedArtefactError

Fields = Mapping[str, tuple[type, ...]]

TEXT: tuple[type, ...] = (str,)
OPTIONAL_TEXT: tuple[type, ...] = (str, NoneType)
FLAG: tuple[type, ...] = (bool,)
COUNT: tuple[type, ...] = (int,)
OPTIONAL_COUNT: tuple[type, ...] = (int, NoneType)
OBJECT: tuple[type, ...] = (dict,)
OPTIONAL_OBJECT: tuple[type, ...] = (dict, NoneType)
# null is how a metric that was not finite is written where JSON forbids NaN.
FIGURE: tuple[type, ...] = (int, float, NoneType)


def read(path: Path) -> str:
    """The text of a file.

    Raises:
        DamagedArtefactError: it is missing or not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtefactError(message(path, f"expected a UTF-8 text file: {error}")) from error


def parse(text: str, place: str, path: Path) -> dict[str, Any]:
    """The JSON object that a text holds; ``place`` names it in the message.

    Raises:
        DamagedArtefactError: it is not JSON, or not an object.
    """
    try:
        value = json.loads(text)
    # RecursionError: brackets nested without end are damage too, not a crash of the report.
    except (ValueError, RecursionError) as error:
        raise DamagedArtefactError(message(path, f"{place} is not valid JSON: {error}")) from error
    if not isinstance(value, dict):
        found = type(value).__name__
        raise DamagedArtefactError(message(path, f"{place}: expected a JSON object, found {found}"))
    return value


def check(values: Mapping[str, Any], fields: Fields, place: str, path: Path) -> None:
    """Hold values against the types their fields may have.

    Raises:
        DamagedArtefactError: one is missing or of another type; names file, place and field.
    """
    for name, types in fields.items():
        if name not in values:
            raise DamagedArtefactError(message(path, f'{place} lacks "{name}"'))
        if not _is_one_of(types, values[name]):
            expected = " or ".join(kind.__name__ for kind in types)
            problem = f'{place}, "{name}": expected {expected}, found {values[name]!r:.80}'
            raise DamagedArtefactError(message(path, problem))


def message(path: Path, problem: str) -> str:
    """What is wrong with a file of a run, and what to do."""
    return f"{path}: {problem}. Remove the run's folder and train it again."


def _is_one_of(types: tuple[type, ...], value: Any) -> bool:
    # bool is an int to isinstance; a count of True is damage.
    if isinstance(value, bool):
        return bool in types
    # JSON's whole numbers know no limit, floats do: a larger one could not be shown.
    return isinstance(value, types) and not (isinstance(value, int) and abs(value) >= 2**63)
