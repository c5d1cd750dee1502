"""Scoreboard: finished runs to the report's data, the plain dict that becomes report.json.

A run folder is untrusted: names and types are checked once, here, so that the renderings may rely on them.
No clock and no folder name enters the report: the same runs give the same report, on any machine.
"""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline.errors import DamagedArtefactError
from pipeline.metrics import METRICS_NAME, RECORD_NAME

SCHEMA_VERSION = 1

_logger = logging.getLogger(__name__)

_Fields = Mapping[str, tuple[type, ...]]

_TEXT: tuple[type, ...] = (str,)
_OPTIONAL_TEXT: tuple[type, ...] = (str, type(None))
_FLAG: tuple[type, ...] = (bool,)
_COUNT: tuple[type, ...] = (int,)
# null is how a metric that was not finite is written where JSON forbids NaN.
_FIGURE: tuple[type, ...] = (int, float, type(None))

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
    "requested_jit_compile": (bool, str, type(None)),
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


def _published(scenario: str, requested: str, effective: str, seconds: float, rate: float, accuracy: float,
               note: str = "") -> dict[str, Any]:  # fmt: skip
    return {
        "scenario": scenario,
        "requested_device": requested,
        "effective_device": effective,
        "device_note": note,
        "dataset": "cifar10",
        "model": "baseline CNN",
        "epochs": 5,
        "train_seconds": seconds,
        "examples_per_second": rate,
        "val_accuracy": accuracy,
        "published_elsewhere": True,
        "source": "published figures of the tutorials this project grew from; 5 epochs × 50,000 images",
    }


# Figures as published: time in seconds, images per second over all epochs, accuracy as a fraction.
PUBLISHED: tuple[Mapping[str, Any], ...] = (
    _published("CPU runtime", "cpu", "cpu", 167.84, 1489, 0.7242),
    _published("GPU runtime", "gpu", "gpu", 34.66, 7213, 0.7336),
    _published("“TPU runtime”", "tpu", "cpu", 30.42, 8218, 0.7227, "the TPU's host: the resolver had failed"),
)


def build_report(run_folders: Sequence[Path], *, current: str | None) -> dict[str, Any]:
    """Collects finished runs into the report's data.

    Args:
        run_folders: Folders of finished runs, in any order.
        current: Fingerprint of the run the report is asked for, or None.

    Returns:
        `schema_version`, `current`, `runs` (as `read_run` gives them, newest first) and `published`. Seconds
        are wall-clock, rates are images per second, accuracies fractions from 0 to 1.

    A run that cannot be read is named in the log and left out: one bad folder must not cost all others their
    report.

    Raises:
        ValueError: No readable run has the fingerprint `current`.
    """
    runs = sorted(_readable_runs(run_folders), key=_age_order, reverse=True)
    if current is not None and current not in {run["fingerprint"] for run in runs}:
        raise ValueError(f"current: expected the fingerprint of one of {len(runs)} runs, got {current!r}")
    return {
        "schema_version": SCHEMA_VERSION,
        "current": current,
        "runs": runs,
        "published": [dict(row) for row in PUBLISHED],
    }


def read_run(folder: Path) -> dict[str, Any]:
    """Reads one finished run: the fields of run.json and, as `curves`, the rows of metrics.jsonl by epoch.

    Raises:
        DamagedArtefactError: A file is missing, is not JSON, or lacks a field or has one of another type; the
            message names file and field.
    """
    record = folder / RECORD_NAME
    run = _parse(_read(record), record.name, record)
    _check(run, _RUN_FIELDS, record.name, record)
    _check_date(run, record)
    return {**run, "curves": _read_curves(folder / METRICS_NAME)}


def _readable_runs(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    for folder in folders:
        try:
            yield read_run(folder)
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)


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


def _check_date(run: Mapping[str, Any], path: Path) -> None:
    try:
        if datetime.fromisoformat(run["finished_at"]).utcoffset() != timedelta(0):
            raise ValueError("not UTC")
    except ValueError as error:
        found = f"{run['finished_at']!r:.80} ({error})"
        problem = f'"finished_at": expected an ISO 8601 date in UTC, found {found}'
        raise DamagedArtefactError(_message(path, problem)) from error


def _age_order(run: Mapping[str, Any]) -> tuple[datetime, str]:
    return datetime.fromisoformat(run["finished_at"]), run["fingerprint"]


def _message(path: Path, problem: str) -> str:
    return f"{path}: {problem}. Remove the run's folder and train it again."
