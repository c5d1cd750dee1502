"""Reads a run's folder. The folder is untrusted: schemas check its names and types here, once."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pipeline.artefacts.fingerprint import fingerprint
from pipeline.artefacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.problems.units import BYTES
from pipeline.report.data.evaluation import read_evaluation
from pipeline.runs.metrics import METRICS_NAME, read_metrics
from pipeline.runs.record import SKIPPED, names, read_record
from pipeline.runs.untrusted import message

_logger = logging.getLogger(__name__)
_Found = TypeVar("_Found")


def or_none(read: Callable[..., _Found], *arguments: object) -> _Found | None:
    """The result of a function that reads an artifact. None if that is damaged, which the log says."""
    try:
        return read(*arguments)
    except DamagedArtefactError as error:
        _logger.warning("left out of the report: %s", error)
        return None


def read_run(folder: Path) -> dict[str, Any]:
    """Read one run: the fields of its record and more.

    `curves`: the rows of metrics.jsonl. `evaluation`: None if there is none. `resumed`: first `epoch` and `hostname` of
    each process that resumed it, one epoch too many if none was left. `fetched_from`: its remote. `made_from` and
    `code`: hashes of the manifest's identity without seed and batch, and of code and library versions alone.

    Raises:
        DamagedArtefactError: A file is missing or damaged; names file and field.
    """
    run = read_record(folder).model_dump(mode="json")
    skipped = run["status"] == SKIPPED
    evaluation = None if skipped else read_evaluation(folder, run["problem"])
    if (evaluation or {}).get("tokens") == BYTES:
        # Records before version 10 lack it.
        run["tokens"] = BYTES
    return {
        **run,
        **_origin(folder),
        "resumed": _resumed(run),
        "fetched_from": (read_fetched(folder) or {"remote": ""})["remote"],
        "curves": [] if skipped else read_metrics(folder / METRICS_NAME),
        "evaluation": evaluation,
    }


def _resumed(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    segments, restored = run["segments"], run["epochs_restored"]
    found = [{"epoch": one["first_epoch"], "hostname": one["hostname"]} for one in segments[1:]]
    if segments and restored >= segments[-1]["last_epoch"]:
        # No epoch was left to train, so no segment shows the resumption.
        found.append({"epoch": restored + 1, "hostname": run["finished_on"]})
    elif restored and not segments:
        # An earlier version recorded the last time alone.
        found.append({"epoch": restored + 1, "hostname": run["hostname"]})
    return found


def _origin(folder: Path) -> dict[str, str | None]:
    if not (folder / MANIFEST_NAME).exists():
        return {"made_from": None, "code": None}
    identity = read_manifest(folder)["identity"]
    try:
        settings, upstream = dict(identity["settings"]), dict(identity["upstream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f'"identity": expected settings and upstream, found other ({error!r})'
        raise DamagedArtefactError(message(folder / MANIFEST_NAME, problem)) from error
    # In the identity these have their names in the record.
    for name in ("global_batch_size", *names("setting", repeated=True)):
        settings.pop(name, None)
    return {
        "made_from": fingerprint({**identity, "settings": settings, "upstream": upstream}),
        "code": fingerprint({part: identity.get(part) for part in ("code", "packages")}),
    }
