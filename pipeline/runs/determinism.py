"""Comparison of a run's weights with those after retraining, in ``determinism/<run>.json`` under the storage root."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import read_manifest
from pipeline.artifacts.publish import replacing
from pipeline.artifacts.stamps import sha256_of
from pipeline.errors import SettingsError
from pipeline.runs.metrics import WEIGHTS_NAME, weights_digest
from pipeline.runs.record import FINISHED, RunRecord, read_record
from pipeline.runs.validation import Untrusted, checked, read_text

# Any of these can change the weights even with deterministic kernels. They set hardware, threads and the order of
# examples.
_SAME = (
    *("status", "effective_device", "device_name", "granted_cores", "num_replicas"),
    *("backend", "precision", "jit_compile", "input_in_memory", "computation_flags"),
)


class Training(Untrusted):
    """A training of a run."""

    weights_sha256: str
    finished_at: str
    hostname: str | None
    device_name: str | None


class Determinism(Untrusted):
    """The published training of a run, and each retraining."""

    run: str
    first: Training
    again: Annotated[tuple[Training, ...], Field(strict=False)]

    @property
    def is_identical(self) -> bool:
        """Whether all trainings gave bit-identical weights."""
        return all(training.weights_sha256 == self.first.weights_sha256 for training in self.again)


def determinism_path(run: Path) -> Path:
    """Return the path of the file about a run."""
    return run.parent.parent / layout.DETERMINISM / f"{run.name}.json"


def read_determinism(run: Path) -> Determinism | None:
    """Read the result for a run's present weights. Return None if they were not retrained.

    A file about another run is ignored. DamagedArtifactError: The file, or the manifest or record, is damaged.
    """
    path = determinism_path(run)
    if not path.exists():
        return None
    result = checked(Determinism, read_text(path), path)
    present = read_record(run).fingerprint, weights_digest(read_manifest(run))
    return result if (result.run, result.first.weights_sha256) == present else None


def compare(run: Path, retrained: Path, previous: Determinism | None = None) -> Determinism:
    """Compare a published run with its retraining in another folder, and append the result to the ``previous`` ones.

    SettingsError: One of them was skipped, or they computed differently, so the kernels cannot be compared.
    """
    first, second = read_record(run), read_record(retrained)
    for name in _SAME if first.effective_device == "cpu" else [name for name in _SAME if name != "granted_cores"]:
        values = [getattr(first, name), getattr(second, name)]
        expected = FINISHED if name == "status" else values[0]
        if values != [expected, expected]:
            raise _not_comparable(run.name, name, *values)
    earlier = previous.again if previous else ()
    again = *earlier, _training(retrained, second)
    result = Determinism(run=first.fingerprint, first=_training(run, first), again=again)
    # The caller removes the folder.
    with replacing(determinism_path(run), retrained) as temporary:
        temporary.write_text(f"{result.model_dump_json(indent=2)}\n", encoding="utf-8")
    return result


def check_machine(run: Path, machine: Mapping[str, Any]) -> None:
    """Refuse retraining a CPU run on another CPU model or number of cores than those of this ``machine``."""
    record = read_record(run)
    host = (record.receipt or {}).get("host")
    for name in ("cpu_model", "granted_cores") if record.effective_device == "cpu" and isinstance(host, dict) else ():
        if name in host and host[name] != machine[name]:
            raise _not_comparable(run.name, name, host[name], machine[name])


def _not_comparable(run: str, name: str, first: object, second: object) -> SettingsError:
    return SettingsError(
        f"verify-determinism: {run} was trained with {name} {first}, but the second training has {second}. This does "
        "not test its kernels. Use a machine like the first one, with the same [Train] device, backend, precision and "
        "cache."
    )


def _training(folder: Path, record: RunRecord) -> Training:
    facts = {name: getattr(record, name) for name in ("finished_at", "hostname", "device_name")}
    return Training(weights_sha256=sha256_of(folder / WEIGHTS_NAME), **facts)
