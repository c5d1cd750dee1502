"""Whether a run that is trained again ends with the same weights: ``determinism/<run>.json`` under the storage root."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_manifest
from pipeline.artifacts.publish import storage_error
from pipeline.artifacts.stamps import sha256_of
from pipeline.errors import SettingsError
from pipeline.runs.metrics import WEIGHTS_NAME, weights_digest
from pipeline.runs.record import FINISHED, RunRecord, read_record
from pipeline.runs.validation import Untrusted, checked, read_text

# A difference in one of these changes the weights, whatever the kernels do: the hardware, the number of threads that
# share a sum, and the order of the examples.
_SAME = (
    *("status", "effective_device", "device_name", "granted_cores", "num_replicas"),
    *("backend", "precision", "jit_compile", "input_in_memory", "computation_flags"),
)


class Training(Untrusted):
    """One training of a run."""

    weights_sha256: str
    finished_at: str
    hostname: str | None
    device_name: str | None


class Determinism(Untrusted):
    """The published training of a run, and each time that it was trained again."""

    run: str
    first: Training
    again: Annotated[tuple[Training, ...], Field(strict=False)]

    @property
    def is_identical(self) -> bool:
        """Whether all trainings ended with the same weights, to the bit."""
        return all(one.weights_sha256 == self.first.weights_sha256 for one in self.again)


def determinism_path(run: Path) -> Path:
    """Path of the file about a run."""
    return run.parent.parent / layout.DETERMINISM / f"{run.name}.json"


def read_determinism(run: Path) -> Determinism | None:
    """The result for the weights that a run has now. None if these were not trained again.

    A file about another run is ignored.

    Raises:
        DamagedArtifactError: the file, or the manifest or record of the run, is damaged.
    """
    path = determinism_path(run)
    if not path.exists():
        return None
    found = checked(Determinism, read_text(path), path)
    if found.run != read_record(run).fingerprint:
        return None
    return found if found.first.weights_sha256 == weights_digest(read_manifest(run)) else None


def compare(run: Path, again: Path, before: Determinism | None = None) -> Determinism:
    """Compare a published run with the same training in another folder, and write the result after those ``before``.

    Raises:
        SettingsError: one of them was skipped, or they computed in another way, which says nothing about the kernels.
        StorageError: the result cannot be written.
    """
    first, second = read_record(run), read_record(again)
    for name in _SAME if first.effective_device == "cpu" else [name for name in _SAME if name != "granted_cores"]:
        values = [getattr(first, name), getattr(second, name)]
        expected = FINISHED if name == "status" else values[0]
        if values != [expected, expected]:
            raise _not_comparable(run.name, name, *values)
    earlier = before.again if before else ()
    found = Determinism(run=first.fingerprint, first=_training(run, first), again=(*earlier, _training(again, second)))
    path = determinism_path(run)
    # In the folder that is removed whatever happens.
    temporary = again / path.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(f"{json.dumps(found.model_dump(), indent=2)}\n", encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise storage_error(error, path.parent.parent, 0) from error
    return found


def check_machine(run: Path, here: Mapping[str, Any]) -> None:
    """Refuse a run of a CPU of another model or number of cores than ``here``, before it is trained again."""
    record = read_record(run)
    host = (record.receipt or {}).get("host")
    for name in ("cpu_model", "granted_cores") if record.effective_device == "cpu" and isinstance(host, dict) else ():
        if name in host and host[name] != here[name]:
            raise _not_comparable(run.name, name, host[name], here[name])


def _not_comparable(run: str, name: str, first: object, second: object) -> SettingsError:
    return SettingsError(
        f"verify-determinism: {run} was trained with {name} {first}, here it is {second}: that would say nothing of "
        "its kernels. Train again on a machine like the first one, with the same [Train] device, backend, precision "
        "and cache."
    )


def _training(folder: Path, record: RunRecord) -> Training:
    return Training(
        weights_sha256=sha256_of(folder / WEIGHTS_NAME),
        finished_at=record.finished_at,
        hostname=record.hostname,
        device_name=record.device_name,
    )
