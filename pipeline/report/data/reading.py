"""Runs of a report, read from their folders. Schemas validate the untrusted folders once, at this point."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import Field, SerializeAsAny

from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.errors import DamagedArtifactError, PipelineError
from pipeline.problems.problem import BYTES, EVALUATION_NAME, Units, units_of
from pipeline.problems.results import Ranking, results_of
from pipeline.runs.determinism import Training, read_determinism
from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, TENSORBOARD_NAME, EpochMetrics, read_metrics
from pipeline.runs.record import SKIPPED, RunRecord, is_placeholder, names, read_record
from pipeline.runs.validation import Count, Untrusted, checked, message, read_text

_LINKED = (MODEL_NAME, METRICS_NAME, TENSORBOARD_NAME)
_logger = logging.getLogger(__name__)
_Read = TypeVar("_Read")


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

    ``folder`` is the name of its folder, and ``files`` are the names in it that the report links to.
    """

    curves: list[EpochMetrics] = []
    resumed: list[Resumption] = []
    evaluation: SerializeAsAny[Untrusted] | None = None
    repetition: Repetition | None = None
    folder: str = Field("", exclude=True)
    files: list[str] = Field([], exclude=True)


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
    record = read_record(folder)
    is_skipped = record.status == SKIPPED
    evaluation = None if is_skipped else _evaluation(folder, record.problem)
    again = read_or_none(read_determinism, folder)
    # Records before version 10 lack this field.
    tokens = BYTES if getattr(evaluation, "tokens", "") == BYTES else record.tokens
    return Run.model_construct(
        **dict(record) | _origin(folder) | {"tokens": tokens},
        resumed=list(_resumptions(record)),
        folder=folder.name,
        files=[name for name in _LINKED if (folder / name).exists()],
        fetched_from=(read_fetched(folder) or {"remote": ""})["remote"],
        curves=[] if is_skipped else [EpochMetrics(**row) for row in read_metrics(folder / METRICS_NAME)],
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


def _evaluation(folder: Path, problem: str) -> Any:
    path, results = folder / EVALUATION_NAME, results_of(problem)
    if not (schema := results.evaluation_schema) or not path.exists():
        return None
    return call_package(schema, lambda: checked(results.hook("evaluation_schema"), read_text(path), path))
