"""Repetitions: which runs were trained again here, and whether their weights came out the same."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME, check_files, read_manifest
from pipeline.errors import DamagedArtefactError
from pipeline.runs.metrics import WEIGHTS_NAME
from pipeline.runs.repetition import Repetition, read_repetition

_logger = logging.getLogger(__name__)


def repetitions(root: Path) -> list[Repetition]:
    """All that lie under a storage root; one that cannot be read is named in the log and left out."""
    found = []
    for place in sorted((root / layout.REPETITIONS).glob(f"[!.]*/{MANIFEST_NAME}")):
        try:
            check_files(place.parent, read_manifest(place.parent))
            found.append(read_repetition(place.parent))
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)
    return found


def repetition(run_folder: Path, run: Mapping[str, Any], known: Sequence[Repetition]) -> dict[str, Any] | None:
    """What training a run again came to, of the weights that it has now; None where nobody did.

    Returns:
        `is_identical`, each time that it was, and `trainings`: `weights_sha256`, `finished_at`, `hostname` and
        `device_name` of the published one and all others.
    """
    weights = _weights_sha256(run_folder)
    found = [one for one in known if (one.run, one.first.weights_sha256) == (run["fingerprint"], weights)]
    if not found:
        return None
    trainings = [found[0].first, *(again for one in found for again in one.again)]
    return {
        "is_identical": all(one.is_identical for one in found),
        "trainings": [training.model_dump() for training in trainings],
    }


def _weights_sha256(run_folder: Path) -> str | None:
    try:
        files = {entry["name"]: entry["sha256"] for entry in read_manifest(run_folder)["files"]}
    except DamagedArtefactError:
        return None
    return files.get(WEIGHTS_NAME)
