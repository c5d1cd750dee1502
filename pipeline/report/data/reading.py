"""Runs of a report, the artifacts that they depend on, and their exports, read from their folders under a storage root.

Schemas validate the untrusted folders once, at this point.
"""

import json
import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, SerializeAsAny
from pydantic_core import to_jsonable_python

from pipeline.artifacts import layout
from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.errors import DamagedArtifactError, PipelineError
from pipeline.problems.problem import BYTES, EVALUATION_NAME, Units, units_of
from pipeline.problems.results import Ranking, results_of
from pipeline.runs.determinism import Training, read_determinism
from pipeline.runs.metrics import (
    EXPORT_NAME,
    METRICS_NAME,
    MODEL_NAME,
    TENSORBOARD_NAME,
    EpochMetrics,
    read_metrics,
    weights_digest,
)
from pipeline.runs.record import FINISHED, RunRecord, is_placeholder, names, read_record
from pipeline.runs.validation import Count, Number, Untrusted, checked, message, read_text

_STAGES = ("Source", "Records", "Train")
_LINKED = (MODEL_NAME, METRICS_NAME, TENSORBOARD_NAME)
_logger = logging.getLogger(__name__)
_Read = TypeVar("_Read")
_Entry = TypeVar("_Entry", bound="Entry")
_Name = TypeVar("_Name", bound=Hashable)


class Entry(RunRecord):
    """A run in the history, with its record and its origin.

    ``made_from`` hashes the manifest's identity without seed and batch size. ``code`` hashes code and library versions.
    ``fetched_from`` is the remote of the run, or "".
    """

    made_from: str | None = None
    code: str | None = None
    fetched_from: str = ""

    @property
    def units(self) -> Units:
        """Names of the units that the problem counts."""
        return units_of(self.problem, self.tokens)

    @property
    def ranking(self) -> Ranking:
        """The metric that ranks runs of the problem."""
        return results_of(self.problem).ranking

    @property
    def is_placeholder(self) -> bool:
        """Whether placeholder examples replaced the requested dataset."""
        return is_placeholder(vars(self))


class Resumption(Untrusted):
    """A process that resumed a run. ``epoch`` is its first epoch, the last plus one if none remained."""

    epoch: Count
    hostname: str | None


class Repetition(Untrusted):
    """The result of retraining a run."""

    is_identical: bool
    trainings: tuple[Training, ...]


class Run(Entry):
    """A run of this storage root, with ``curves`` by epoch and the evaluation in the schema of its problem.

    ``path`` is its folder, and ``files`` are the names in it that the report links to.
    """

    curves: list[EpochMetrics] = []
    resumed: list[Resumption] = []
    evaluation: SerializeAsAny[Untrusted] | None = None
    repetition: Repetition | None = None
    path: Path = Field(Path(), exclude=True)
    files: list[str] = Field([], exclude=True)


class Form(Untrusted):
    """An exported format, compared with the Keras model on the test split, and its speed on the exporting machine."""

    bytes: Count
    accuracy: Number
    agreement: Number
    largest_difference: Number
    # None for exports of version 0.2.
    milliseconds: Number = None
    examples_per_second: Number = None


class Exported(Untrusted):
    """The exported formats of a run by name."""

    num_examples: Count
    forms: dict[str, Form]


@dataclass(frozen=True)
class Artifact:
    """An artifact of a stage by the name of its folder. Facts of the manifest are None if it is not under this root."""

    stage: str
    artifact: str
    fingerprint: str
    settings: Mapping[str, Any] | None = None
    packages: Mapping[str, Any] | None = None
    seconds: float | None = None
    made_at: str | None = None


def facts(run: Entry, fields: Iterable[str]) -> dict[str, Any]:
    """Return these fields of a run as data for JSON."""
    return {name: to_jsonable_python(getattr(run, name)) for name in fields}


def grouped(runs: Iterable[_Entry], fields: Sequence[str]) -> list[list[_Entry]]:
    """Group runs that agree in all of the fields. Groups and runs keep their order."""
    groups: dict[str, list[_Entry]] = {}
    for run in runs:
        # Some fields contain unhashable objects.
        groups.setdefault(json.dumps(facts(run, fields), sort_keys=True), []).append(run)
    return list(groups.values())


def differing(facts: Sequence[Mapping[_Name, Any]]) -> list[_Name]:
    """Return the names of the facts that are not the same in all mappings. A missing fact is None."""
    return [
        name for name in dict.fromkeys(chain(*facts)) if any(other.get(name) != facts[0].get(name) for other in facts)
    ]


def leaves(value: Any, *path: str, containers: Any = Mapping | list) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) of each value that is no container. Indices of lists start at 1."""
    if isinstance(value, containers):
        for name, child in value.items() if isinstance(value, Mapping) else enumerate(value, start=1):
            yield from leaves(child, *path, str(name), containers=containers)
    else:
        yield path, value


def read_or_none(read: Callable[..., _Read], *arguments: object, **options: object) -> _Read | None:
    """Return the result of a function that reads an artifact. Log a damaged artifact and return None."""
    try:
        return read(*arguments, **options)
    except DamagedArtifactError as error:
        _logger.warning("Run not included in the report. %s", error)
        return None


def call_package(name: str, call: Callable[[], Any]) -> Any:
    """Return the result of ``call``, which runs the code ``name``. Log an error of another package, and return None."""
    try:
        result = call()
        # A generator raises its errors while it is consumed.
        return list(result) if isinstance(result, Iterator) else result
    # Code of other packages may raise any exception.
    except Exception as error:
        if name.startswith("pipeline."):
            raise
        problem = f"{name} raised {type(error).__name__}: {error}. Repair or uninstall the package that contains it."
        _logger.warning("Section left out of the report. %s", error if isinstance(error, PipelineError) else problem)
        return None


def call_hook(problem: str, field: str, *arguments: object) -> Any:
    """Call the function that a field of the problem's ``Results`` names. None if there is none, see `call_package`."""
    results = results_of(problem)
    name = getattr(results, field)
    return call_package(name, lambda: results.hook(field)(*arguments)) if name else None


def split_counts(run: Run) -> dict[str, int | None]:
    """Return the number of examples of each split, as far as the run contains it."""
    values = call_hook(run.problem, "card", run) or {}
    return {"test": run.test_examples, **dict(values.get("counts", ()))}


def read_run(folder: Path) -> Run:
    """Read a run. The DamagedArtifactError of a missing or invalid file names file and field."""
    record, again, path = read_record(folder), read_or_none(read_determinism, folder), folder / EVALUATION_NAME
    results, is_finished, evaluation = results_of(record.problem), record.status == FINISHED, None
    if is_finished and (schema := results.evaluation_schema) and path.exists():
        evaluation = call_package(schema, lambda: checked(results.hook("evaluation_schema"), read_text(path), path))
    # Records before version 10 lack this field.
    tokens = BYTES if getattr(evaluation, "tokens", "") == BYTES else record.tokens
    return Run.model_construct(
        **dict(record) | _origin(folder) | {"tokens": tokens},
        resumed=list(_resumptions(record)),
        path=folder,
        files=[name for name in _LINKED if (folder / name).exists()],
        fetched_from=(read_fetched(folder) or {"remote": ""})["remote"],
        curves=[EpochMetrics(**row) for row in read_metrics(folder / METRICS_NAME)] if is_finished else [],
        evaluation=evaluation,
        repetition=again and Repetition(is_identical=again.is_identical, trainings=(again.first, *again.again)),
    )


def _resumptions(run: RunRecord) -> Iterator[Resumption]:
    for segment in run.segments[1:]:
        yield Resumption(epoch=segment.first_epoch, hostname=segment.hostname)
    # No segment shows the resumption of a run without remaining epochs, or of an earlier version.
    if (restored := run.epochs_restored) and all(restored >= segment.last_epoch for segment in run.segments):
        yield Resumption(epoch=restored + 1, hostname=run.finished_on or run.hostname)


def _origin(folder: Path) -> dict[str, str | None]:
    if not (folder / MANIFEST_NAME).exists():
        return {"made_from": None, "code": None}
    identity = read_manifest(folder)["identity"]
    try:
        settings, upstream = dict(identity["settings"]), dict(identity["upstream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f'"identity": expected settings and upstream ({error!r})'
        raise DamagedArtifactError(message(folder / MANIFEST_NAME, problem)) from error
    # The identity names these fields as the record does.
    for name in ("global_batch_size", *names("setting", repeated=True)):
        settings.pop(name, None)
    return {
        "made_from": fingerprint({**identity, "settings": settings, "upstream": upstream}),
        "code": fingerprint({section: identity.get(section) for section in ("code", "packages")}),
    }


def lineage(runs: Iterable[Run]) -> list[Artifact]:
    """Return the artifacts that the runs depend on, without duplicates, by stage."""
    artifacts: dict[str, Artifact] = {}
    for run in runs:
        root = run.path.parent.parent
        records = _newest(root / layout.RECORDS, "fingerprint", run.records_fingerprint)
        source = _newest(root / layout.SOURCE, "source", records.get("identity", {}).get("upstream"))
        manifests = source, records, _manifest(run.path)
        recorded = None, run.records_fingerprint, run.fingerprint
        for stage, manifest, expected in zip(_STAGES, manifests, recorded, strict=True):
            if name := manifest.get("fingerprint", expected):
                label = manifest["folder"].name.rpartition("-")[0] if manifest else stage.lower()
                facts = [manifest.get("identity", {}).get(section) for section in ("settings", "packages")]
                facts += manifest.get("seconds"), manifest.get("created_at")
                artifacts.setdefault(name, Artifact(stage, f"{label}-{name[:12]}", name, *facts))
    return sorted(artifacts.values(), key=lambda artifact: _STAGES.index(artifact.stage))


def exported(run: Run) -> Exported | None:
    """Return the newest export of a run's weights, None if this root contains none. Raises DamagedArtifactError."""
    manifest = _manifest(run.path)
    # A retrained run may have other weights.
    identity = {"run": run.fingerprint, "weights": weights_digest(manifest) if manifest else None}
    if not (export := _newest(run.path.parent.parent / layout.EXPORTS, "upstream", identity)):
        return None
    path = export["folder"] / EXPORT_NAME
    return checked(Exported, read_text(path), path)


def _newest(kind: Path, name: str, value: object) -> Mapping[str, Any]:
    """Return the newest manifest that has this value, itself or in its identity, or {}."""
    manifests = [_manifest(folder) for folder in layout.artifact_folders(kind)]
    matches = [item for item in manifests if item and value and {**item["identity"], **item}.get(name) == value]
    return max(matches, key=lambda item: item["created_at"], default={})


def _manifest(folder: Path) -> dict[str, Any]:
    """Return a manifest with its ``folder``, or {} if it is missing or damaged."""
    try:
        return {**read_manifest(folder), "folder": folder}
    except DamagedArtifactError:
        return {}
