"""Repetitions: which runs were trained again here, and whether their weights came out the same."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME, check_files, read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.runs.metrics import WEIGHTS_NAME
from pipeline.runs.repetition import read_repetition

_logger = logging.getLogger(__name__)


def repetition(run_folder: Path, run: Mapping[str, Any]) -> dict[str, Any] | None:
    """What training a run again came to: `is_identical`, and `hostname` and `device_name` of both; None: it was not.

    Of the weights that the run has now: what was seen of others says nothing of these.
    """
    weights = _weights_sha256(run_folder)
    for place in sorted((run_folder.parent.parent / layout.REPETITIONS).glob(f"[!.]*/{MANIFEST_NAME}")):
        try:
            check_files(place.parent, read_manifest(place.parent))
            found = read_repetition(place.parent)
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)
            continue
        if weights and (found.run, found.first.weights_sha256) == (run["fingerprint"], weights):
            trainings = {"first": found.first, "again": found.again}
            where = {name: one.model_dump(include={"hostname", "device_name"}) for name, one in trainings.items()}
            return {"is_identical": found.is_identical, **where}
    return None


def _weights_sha256(run_folder: Path) -> str | None:
    try:
        files = {entry["name"]: entry["sha256"] for entry in read_manifest(run_folder)["files"]}
    except DamagedArtefactError:
        return None
    return files.get(WEIGHTS_NAME)
