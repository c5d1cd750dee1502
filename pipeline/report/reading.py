"""Reading: a run's folder to the plain dict all of the report works on.

A run folder is untrusted: names and types are checked once, here, so that everything after may rely on them.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any

from pipeline.errors import DamagedArtefactError
from pipeline.fingerprint import fingerprint
from pipeline.manifest import MANIFEST_NAME, read_manifest
from pipeline.metrics import METRICS_NAME, RECORD_NAME

FINISHED, SKIPPED = "finished", "skipped"

_Fields = Mapping[str, tuple[type, ...]]

_TEXT: tuple[type, ...] = (str,)
_OPTIONAL_TEXT: tuple[type, ...] = (str, NoneType)
_FLAG: tuple[type, ...] = (bool,)
_COUNT: tuple[type, ...] = (int,)
_OPTIONAL_COUNT: tuple[type, ...] = (int, NoneType)
_OPTIONAL_OBJECT: tuple[type, ...] = (dict, NoneType)
# null is how a metric that was not finite is written where JSON forbids NaN.
_FIGURE: tuple[type, ...] = (int, float, NoneType)

_RUN_FIELDS: _Fields = {
    "dataset": _TEXT,
    "requested_dataset": _TEXT,
    "dataset_verified": _FLAG,
    "model": _TEXT,
    "recipe": _TEXT,
    "requested_device": _TEXT,
    "effective_device": _TEXT,
    "device_verified": _FLAG,
    "device_name": _OPTIONAL_TEXT,
    "num_replicas": _COUNT,
    "global_batch_size": _COUNT,
    "epochs": _COUNT,
    "seed": _COUNT,
    "requested_precision": _TEXT,
    "precision": _TEXT,
    "requested_jit_compile": (bool, str, NoneType),
    "jit_compile": _FLAG,
    "train_seconds": _FIGURE,
    "first_epoch_seconds": _FIGURE,
    "examples_per_second": _FIGURE,
    "val_accuracy": _FIGURE,
    "val_loss": _FIGURE,
    "fingerprint": _TEXT,
    "finished_at": _TEXT,
    "hostname": _OPTIONAL_TEXT,
}

# Absent from records made before there was such a field: (types, what stands for a missing one).
_LATER_FIELDS: Mapping[str, tuple[tuple[type, ...], Any]] = {
    "status": (_TEXT, FINISHED),
    "on_mismatch": (_TEXT, "fail"),
    "mismatch": (_OPTIONAL_OBJECT, None),
    "receipt": (_OPTIONAL_OBJECT, None),
    "content_digests": (_OPTIONAL_OBJECT, None),
    "steps_per_epoch": (_OPTIONAL_COUNT, None),
    "steps_per_execution": (_OPTIONAL_COUNT, None),
    "input_in_memory": ((bool, NoneType), None),
    "epochs_restored": (_COUNT, 0),
    "time_breakdown": (_OPTIONAL_OBJECT, None),
    "peak_host_bytes": (_OPTIONAL_COUNT, None),
    "peak_device_bytes": (_OPTIONAL_COUNT, None),
    "tuning": (_OPTIONAL_OBJECT, None),
}

_OBJECT_FIELDS: Mapping[str, _Fields] = {
    "mismatch": dict.fromkeys(("cause", "remedy", "error"), _TEXT),
    "content_digests": dict.fromkeys(("train", "test"), _TEXT),
    "time_breakdown": dict.fromkeys(
        (
            "step_seconds",
            "step_alone_seconds",
            "input_alone_seconds",
            "input_wait_share",
            "compilation_seconds",
            "evaluation_seconds",
            "checkpoint_seconds",
        ),
        _FIGURE,
    ),
    "tuning": {"chosen": _OPTIONAL_OBJECT, "candidates": (list,)},
}

# What else was varied is told by each candidate itself.
_CANDIDATE_FIELDS: _Fields = {"examples_per_second": _FIGURE}

# What a run that was skipped has none of.
_MEASURED = ("train_seconds", "first_epoch_seconds", "examples_per_second", "val_accuracy", "val_loss")

_EPOCH_FIELDS: _Fields = {
    "epoch": _COUNT,
    "loss": _FIGURE,
    "accuracy": _FIGURE,
    "val_loss": _FIGURE,
    "val_accuracy": _FIGURE,
    "train_seconds": _FIGURE,
    "evaluation_seconds": _FIGURE,
    "examples_per_second": _FIGURE,
    "learning_rate": _FIGURE,
}

# Far more than any record of ours has, far less than Python's recursion takes.
_MOST_LEVELS = 16


def read_run(folder: Path) -> dict[str, Any]:
    """Reads one run: the fields of run.json and, as `curves`, the rows of metrics.jsonl by epoch.

    Returns:
        The record's fields, those that an older record lacks filled in, with `curves` (empty for a run that was
        skipped) and `made_from`: a hash of the manifest's identity without seed, batch and what was measured
        for that batch, None where there is no manifest.

    Raises:
        DamagedArtefactError: A file is missing, is not JSON, or lacks a field or has one of another type; the
            message names file and field.
    """
    record = folder / RECORD_NAME
    parsed = _parse(_read(record), record.name, record)
    run = {**{name: default for name, (_, default) in _LATER_FIELDS.items()}, **parsed}
    _check(run, _RUN_FIELDS | {name: types for name, (types, _) in _LATER_FIELDS.items()}, record.name, record)
    _check_objects(run, record)
    _check_date(run, record)
    _check_status(run, record)
    skipped = run["status"] == SKIPPED
    return {**run, "made_from": _made_from(folder), "curves": [] if skipped else _read_curves(folder / METRICS_NAME)}


def _made_from(folder: Path) -> str | None:
    if not (folder / MANIFEST_NAME).exists():
        return None
    identity = read_manifest(folder)["identity"]
    try:
        settings, upstream = dict(identity["settings"]), dict(identity["upstream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f'"identity": expected settings and upstream, found other ({error!r})'
        raise DamagedArtefactError(_message(folder / MANIFEST_NAME, problem)) from error
    for name in ("seed", "global_batch_size"):
        settings.pop(name, None)
    # Measured anew for each batch; the record says what it came to.
    upstream.pop("computation", None)
    return fingerprint({**identity, "settings": settings, "upstream": upstream})


def _read_curves(path: Path) -> list[dict[str, Any]]:
    lines = [(number, line) for number, line in enumerate(_read(path).split("\n"), start=1) if line.strip()]
    if not lines:
        raise DamagedArtefactError(_message(path, "expected one JSON object per epoch, found none"))
    rows = []
    for number, line in lines:
        row = _parse(line, f"line {number}", path)
        _check(row, _EPOCH_FIELDS, f"line {number}", path)
        rows.append(row)
    return sorted(rows, key=lambda row: row["epoch"])


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DamagedArtefactError(_message(path, f"expected a UTF-8 text file: {error}")) from error


def _parse(text: str, place: str, path: Path) -> dict[str, Any]:
    try:
        value = json.loads(text)
    # RecursionError: brackets nested without end are damage too, not a crash of the report.
    except (ValueError, RecursionError) as error:
        raise DamagedArtefactError(_message(path, f"{place} is not valid JSON: {error}")) from error
    if not isinstance(value, dict):
        found = type(value).__name__
        raise DamagedArtefactError(_message(path, f"{place}: expected a JSON object, found {found}"))
    return value


def _check(values: Mapping[str, Any], fields: _Fields, place: str, path: Path) -> None:
    for name, types in fields.items():
        if name not in values:
            raise DamagedArtefactError(_message(path, f'{place} lacks "{name}"'))
        if not _is_one_of(types, values[name]):
            expected = " or ".join(kind.__name__ for kind in types)
            problem = f'{place}, "{name}": expected {expected}, found {values[name]!r:.80}'
            raise DamagedArtefactError(_message(path, problem))


def _is_one_of(types: tuple[type, ...], value: Any) -> bool:
    # bool is an int to isinstance; a count of True is damage.
    if isinstance(value, bool):
        return bool in types
    # JSON's whole numbers know no limit, floats do: a larger one could not be shown.
    return isinstance(value, types) and not (isinstance(value, int) and abs(value) >= 2**63)


def _check_objects(run: Mapping[str, Any], path: Path) -> None:
    if _is_deeper(run, _MOST_LEVELS):
        raise DamagedArtefactError(_message(path, f"expected at most {_MOST_LEVELS} levels of objects and lists"))
    for name, fields in _OBJECT_FIELDS.items():
        if run[name] is not None:
            _check(run[name], fields, f'{path.name}, "{name}"', path)
    for number, candidate in enumerate((run["tuning"] or {}).get("candidates", ()), start=1):
        place = f'{path.name}, "tuning", candidate {number}'
        if not isinstance(candidate, dict):
            raise DamagedArtefactError(_message(path, f"{place}: expected a JSON object, found {candidate!r:.80}"))
        _check(candidate, _CANDIDATE_FIELDS, place, path)


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _check_status(run: Mapping[str, Any], path: Path) -> None:
    if run["status"] not in (FINISHED, SKIPPED):
        problem = f'"status": expected {FINISHED} or {SKIPPED}, found {run["status"]!r:.80}'
        raise DamagedArtefactError(_message(path, problem))
    if run["status"] == FINISHED:
        return
    if run["mismatch"] is None:
        raise DamagedArtefactError(_message(path, f'"mismatch": expected why the run was {SKIPPED}, found null'))
    for name in _MEASURED:
        if run[name] is not None:
            problem = f'"{name}": expected null in a run that was {SKIPPED}, found {run[name]!r:.80}'
            raise DamagedArtefactError(_message(path, problem))


def _check_date(run: Mapping[str, Any], path: Path) -> None:
    try:
        if datetime.fromisoformat(run["finished_at"]).utcoffset() != timedelta(0):
            raise ValueError("not UTC")
    except ValueError as error:
        found = f"{run['finished_at']!r:.80} ({error})"
        problem = f'"finished_at": expected an ISO 8601 date in UTC, found {found}'
        raise DamagedArtefactError(_message(path, problem)) from error


def _message(path: Path, problem: str) -> str:
    return f"{path}: {problem}. Remove the run's folder and train it again."
