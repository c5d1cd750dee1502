"""Repetition: a run trained again, and whether its weights came out the same (… → training → repetition → report).

That kernels were asked to be deterministic is a promise; that two trainings ended with the same bits was seen.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pipeline.artefacts.verified import sha256_of
from pipeline.errors import SettingsError
from pipeline.runs.metrics import WEIGHTS_NAME
from pipeline.runs.record import FINISHED, RunRecord, read_record
from pipeline.runs.untrusted import Untrusted, checked, read_text

REPETITION_NAME = "repetition.json"
# What two trainings of the same settings may differ in, and then in their weights, whatever the kernels do: where they
# computed, among how many threads a sum was divided, and in which order examples came (see used_by in results.py).
_SAME = (
    *("status", "effective_device", "device_name", "granted_cores", "num_replicas"),
    *("backend", "precision", "jit_compile", "input_in_memory", "computation_flags"),
)


class Training(Untrusted):
    """One training of a run: the sha256 of the weights it ended with, when, and what it was done on."""

    weights_sha256: str
    finished_at: str
    hostname: str | None
    device_name: str | None


class Repetition(Untrusted):
    """A run, by its fingerprint, as it was published, and each time that it was trained once more."""

    run: str
    first: Training
    again: Annotated[tuple[Training, ...], Field(strict=False)]

    @property
    def is_identical(self) -> bool:
        """Whether each time it ended with the same weights, to the bit: one that did not is not forgotten."""
        return all(one.weights_sha256 == self.first.weights_sha256 for one in self.again)


def compare(run: Path, again: Path, folder: Path, before: Repetition | None = None) -> Repetition:
    """Compare a published run with the same training in another folder, and leave what was found.

    Args:
        run: the published run's folder.
        again: that of the training.
        folder: where what was found is left.
        before: what was found of the same weights earlier, which stays.

    Raises:
        SettingsError: one of them was skipped, or they computed otherwise: that says nothing of the kernels.
    """
    first, second = (read_record(one) for one in (run, again))
    for what in _SAME if first.effective_device == "cpu" else [one for one in _SAME if one != "granted_cores"]:
        values = [getattr(record, what) for record in (first, second)]
        expected = FINISHED if what == "status" else values[0]
        if values != [expected, expected]:
            raise _refusal(run.name, what, *values)
    found = Repetition(run=first.fingerprint, first=_training(run, first), again=(_training(again, second),))
    if before and (before.run, before.first.weights_sha256) == (found.run, found.first.weights_sha256):
        found = found.model_copy(update={"again": (*before.again, *found.again)})
    text = json.dumps(found.model_dump(), indent=2)
    (folder / REPETITION_NAME).write_text(f"{text}\n", encoding="utf-8")
    return found


def check_machine(run: Path, here: Mapping[str, Any]) -> None:
    """That a run was trained on a machine like that ``here``, as far as can be seen before it is trained again.

    Args:
        run: the published run's folder.
        here: this machine, as its receipt would describe it.

    Raises:
        SettingsError: another processor computed it, or another number of its cores.
    """
    record = read_record(run)
    host = (record.receipt or {}).get("host")
    for what in ("cpu_model", "granted_cores") if record.effective_device == "cpu" and isinstance(host, dict) else ():
        if what in host and host[what] != here[what]:
            raise _refusal(run.name, what, host[what], here[what])


def read_repetition(folder: Path) -> Repetition:
    """What a repetition left.

    Raises:
        DamagedArtefactError: it is not what ``compare`` writes; names file and field.
    """
    path = folder / REPETITION_NAME
    return checked(Repetition, read_text(path), path)


def _refusal(run: str, what: str, first: object, second: object) -> SettingsError:
    return SettingsError(
        f"Repetition: {run} was trained with {what} {first}, here it is {second}: that would say nothing of its "
        "kernels. Repeat it on a machine like that which it was trained on, with the same [Train] device, backend, "
        "precision and cache."
    )


def _training(folder: Path, record: RunRecord) -> Training:
    return Training(
        weights_sha256=sha256_of(folder / WEIGHTS_NAME),
        finished_at=record.finished_at,
        hostname=record.hostname,
        device_name=record.device_name,
    )
