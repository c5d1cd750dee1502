"""Repetition: a run trained again, and whether its weights came out the same (… → training → repetition → report).

That kernels were asked to be deterministic is a promise; that two trainings ended with the same bits was seen.
"""

import json
from pathlib import Path

from pipeline.artefacts.manifest import sha256_of
from pipeline.errors import DamagedArtefactError
from pipeline.runs.metrics import WEIGHTS_NAME
from pipeline.runs.record import FINISHED, RunRecord, read_record
from pipeline.runs.untrusted import Untrusted, checked, read_text

REPETITION_NAME = "repetition.json"


class Training(Untrusted):
    """One of the two trainings: the sha256 of the weights it ended with, and where it was done."""

    weights_sha256: str
    hostname: str | None
    effective_device: str
    device_name: str | None


class Repetition(Untrusted):
    """A run, by its fingerprint, as it was published and as it was trained once more."""

    run: str
    finished_at: str
    first: Training
    again: Training

    @property
    def is_identical(self) -> bool:
        """Whether both ended with the same weights, to the bit."""
        return self.first.weights_sha256 == self.again.weights_sha256


def compare(run: Path, again: Path, folder: Path) -> Repetition:
    """Compare a published run with the same training in another folder, and leave what was found.

    Raises:
        DamagedArtefactError: one of them has no weights, as a run that was skipped.
    """
    records = [read_record(one) for one in (run, again)]
    for one, record in zip((run, again), records, strict=True):
        if record.status != FINISHED:
            raise DamagedArtefactError(f"{one}: expected a run that was trained, it was {record.status}")
    first, second = (_training(one, record) for one, record in zip((run, again), records, strict=True))
    found = Repetition(run=records[0].fingerprint, finished_at=records[1].finished_at, first=first, again=second)
    text = json.dumps(found.model_dump(), indent=2)
    (folder / REPETITION_NAME).write_text(f"{text}\n", encoding="utf-8")
    return found


def read_repetition(folder: Path) -> Repetition:
    """What a repetition left.

    Raises:
        DamagedArtefactError: it is not what ``compare`` writes; names file and field.
    """
    path = folder / REPETITION_NAME
    return checked(Repetition, read_text(path), path)


def _training(folder: Path, record: RunRecord) -> Training:
    return Training(
        weights_sha256=sha256_of(folder / WEIGHTS_NAME),
        hostname=record.hostname,
        effective_device=record.effective_device,
        device_name=record.device_name,
    )
