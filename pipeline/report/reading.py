"""Reading: a run's folder to the plain dict all of the report works on.

A run folder is untrusted: names and types are checked once, here, so that everything after may rely on them.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import NoneType
from typing import Any

from pipeline.artefacts.fingerprint import fingerprint
from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.metrics import METRICS_NAME, RECORD_NAME
from pipeline.report.fields import (
    COUNT,
    FIGURE,
    FLAG,
    OPTIONAL_COUNT,
    OPTIONAL_OBJECT,
    OPTIONAL_TEXT,
    TEXT,
    Fields,
    check,
    message,
    parse,
    read,
)
from pipeline.report.predictions import read_evaluation

FINISHED, SKIPPED = "finished", "skipped"

_RUN_FIELDS: Fields = {
    "dataset": TEXT,
    "requested_dataset": TEXT,
    "dataset_verified": FLAG,
    "model": TEXT,
    "recipe": TEXT,
    "requested_device": TEXT,
    "effective_device": TEXT,
    "device_verified": FLAG,
    "device_name": OPTIONAL_TEXT,
    "num_replicas": COUNT,
    "global_batch_size": COUNT,
    "epochs": COUNT,
    "seed": COUNT,
    "requested_precision": TEXT,
    "precision": TEXT,
    "requested_jit_compile": (bool, str, NoneType),
    "jit_compile": FLAG,
    "train_seconds": FIGURE,
    "first_epoch_seconds": FIGURE,
    "examples_per_second": FIGURE,
    "val_accuracy": FIGURE,
    "val_loss": FIGURE,
    "fingerprint": TEXT,
    "finished_at": TEXT,
    "hostname": OPTIONAL_TEXT,
}

# Absent from records made before there was such a field: (types, what stands for a missing one).
_LATER_FIELDS: Mapping[str, tuple[tuple[type, ...], Any]] = {
    "status": (TEXT, FINISHED),
    "on_mismatch": (TEXT, "fail"),
    "mismatch": (OPTIONAL_OBJECT, None),
    "receipt": (OPTIONAL_OBJECT, None),
    "content_digests": (OPTIONAL_OBJECT, None),
    "records_fingerprint": (OPTIONAL_TEXT, None),
    "steps_per_epoch": (OPTIONAL_COUNT, None),
    "steps_per_execution": (OPTIONAL_COUNT, None),
    "input_in_memory": ((bool, NoneType), None),
    "epochs_restored": (COUNT, 0),
    "time_breakdown": (OPTIONAL_OBJECT, None),
    "peak_host_bytes": (OPTIONAL_COUNT, None),
    "peak_device_bytes": (OPTIONAL_COUNT, None),
    "tuning": (OPTIONAL_OBJECT, None),
}

_OBJECT_FIELDS: Mapping[str, Fields] = {
    "mismatch": dict.fromkeys(("cause", "remedy", "error"), TEXT),
    "content_digests": dict.fromkeys(("train", "test"), TEXT),
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
        FIGURE,
    ),
    "tuning": {"chosen": OPTIONAL_OBJECT, "candidates": (list,)},
}

# What else was varied is told by each candidate itself.
_CANDIDATE_FIELDS: Fields = {"examples_per_second": FIGURE}

# What a run that was skipped has none of.
_MEASURED = ("train_seconds", "first_epoch_seconds", "examples_per_second", "val_accuracy", "val_loss")

_EPOCH_FIELDS: Fields = {
    "epoch": COUNT,
    "loss": FIGURE,
    "accuracy": FIGURE,
    "val_loss": FIGURE,
    "val_accuracy": FIGURE,
    "train_seconds": FIGURE,
    "evaluation_seconds": FIGURE,
    "examples_per_second": FIGURE,
    "learning_rate": FIGURE,
}

# Far more than any record of ours has, far less than Python's recursion takes.
_MOST_LEVELS = 16


def read_run(folder: Path) -> dict[str, Any]:
    """Reads one run: the fields of run.json and, as `curves`, the rows of metrics.jsonl by epoch.

    Returns:
        The record's fields, those that an older record lacks filled in, with `curves` (empty for a run that was
        skipped), `evaluation` (the facts of evaluation.json, None where there is none) and `made_from`: a hash of the
        manifest's identity without seed, batch and what was measured for that batch, None where there is no manifest.

    Raises:
        DamagedArtefactError: A file is missing, is not JSON, or lacks a field or has one of another type; the
            message names file and field.
    """
    record = folder / RECORD_NAME
    parsed = parse(read(record), record.name, record)
    run = {**{name: default for name, (_, default) in _LATER_FIELDS.items()}, **parsed}
    check(run, _RUN_FIELDS | {name: types for name, (types, _) in _LATER_FIELDS.items()}, record.name, record)
    _check_objects(run, record)
    _check_date(run, record)
    _check_status(run, record)
    skipped = run["status"] == SKIPPED
    return {
        **run,
        "made_from": _made_from(folder),
        "curves": [] if skipped else _read_curves(folder / METRICS_NAME),
        "evaluation": None if skipped else read_evaluation(folder),
    }


def is_stand_in(run: Mapping[str, Any]) -> bool:
    """Whether generated images took the place of the dataset asked for."""
    return run["dataset"] == "synthetic" and run["requested_dataset"] != "synthetic"


def is_fallback(run: Mapping[str, Any]) -> bool:
    """Whether the run used another device than the one asked for."""
    if run["status"] == SKIPPED:
        return False
    return run["mismatch"] is not None or run["requested_device"] not in ("auto", run["effective_device"])


def _made_from(folder: Path) -> str | None:
    if not (folder / MANIFEST_NAME).exists():
        return None
    identity = read_manifest(folder)["identity"]
    try:
        settings, upstream = dict(identity["settings"]), dict(identity["upstream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f'"identity": expected settings and upstream, found other ({error!r})'
        raise DamagedArtefactError(message(folder / MANIFEST_NAME, problem)) from error
    for name in ("seed", "global_batch_size"):
        settings.pop(name, None)
    # Measured anew for each batch; the record says what it came to.
    upstream.pop("computation", None)
    return fingerprint({**identity, "settings": settings, "upstream": upstream})


def _read_curves(path: Path) -> list[dict[str, Any]]:
    lines = [(number, line) for number, line in enumerate(read(path).split("\n"), start=1) if line.strip()]
    if not lines:
        raise DamagedArtefactError(message(path, "expected one JSON object per epoch, found none"))
    rows = []
    for number, line in lines:
        row = parse(line, f"line {number}", path)
        check(row, _EPOCH_FIELDS, f"line {number}", path)
        rows.append(row)
    return sorted(rows, key=lambda row: row["epoch"])


def _check_objects(run: Mapping[str, Any], path: Path) -> None:
    if _is_deeper(run, _MOST_LEVELS):
        raise DamagedArtefactError(message(path, f"expected at most {_MOST_LEVELS} levels of objects and lists"))
    for name, fields in _OBJECT_FIELDS.items():
        if run[name] is not None:
            check(run[name], fields, f'{path.name}, "{name}"', path)
    for number, candidate in enumerate((run["tuning"] or {}).get("candidates", ()), start=1):
        place = f'{path.name}, "tuning", candidate {number}'
        if not isinstance(candidate, dict):
            raise DamagedArtefactError(message(path, f"{place}: expected a JSON object, found {candidate!r:.80}"))
        check(candidate, _CANDIDATE_FIELDS, place, path)


def _is_deeper(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    children = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(child, levels - 1) for child in children)


def _check_status(run: Mapping[str, Any], path: Path) -> None:
    if run["status"] not in (FINISHED, SKIPPED):
        problem = f'"status": expected {FINISHED} or {SKIPPED}, found {run["status"]!r:.80}'
        raise DamagedArtefactError(message(path, problem))
    if run["status"] == FINISHED:
        return
    if run["mismatch"] is None:
        raise DamagedArtefactError(message(path, f'"mismatch": expected why the run was {SKIPPED}, found null'))
    for name in _MEASURED:
        if run[name] is not None:
            problem = f'"{name}": expected null in a run that was {SKIPPED}, found {run[name]!r:.80}'
            raise DamagedArtefactError(message(path, problem))


def _check_date(run: Mapping[str, Any], path: Path) -> None:
    try:
        if datetime.fromisoformat(run["finished_at"]).utcoffset() != timedelta(0):
            raise ValueError("not UTC")
    except ValueError as error:
        found = f"{run['finished_at']!r:.80} ({error})"
        problem = f'"finished_at": expected an ISO 8601 date in UTC, found {found}'
        raise DamagedArtefactError(message(path, problem)) from error
