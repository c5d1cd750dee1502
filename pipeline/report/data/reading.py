"""A run as the report sees it, read from its folder. The folder is untrusted: schemas check it here, once."""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import SerializeAsAny

from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.manifest import MANIFEST_NAME, read_fetched, read_manifest
from pipeline.errors import DamagedArtifactError, PipelineError
from pipeline.problems.problem import EVALUATION_NAME
from pipeline.problems.results import results_of
from pipeline.problems.units import BYTES, Units, units_of
from pipeline.runs.determinism import Training, read_determinism
from pipeline.runs.metrics import METRICS_NAME, EpochMetrics, read_metrics
from pipeline.runs.record import SKIPPED, RunRecord, is_placeholder, names, read_record
from pipeline.runs.validation import Count, Untrusted, checked, message, read_text

_logger = logging.getLogger(__name__)
_Read = TypeVar("_Read")


class Entry(RunRecord):
    """A run in the history: its record and where it comes from.

    ``made_from`` and ``code``: hashes of the manifest's identity without seed and batch, and of code and library
    versions alone. ``fetched_from``: its remote.
    """

    made_from: str | None = None
    code: str | None = None
    fetched_from: str = ""

    @property
    def units(self) -> Units:
        """Names of what its problem counts."""
        return units_of(self.problem, self.tokens)

    @property
    def is_placeholder(self) -> bool:
        """Whether placeholder examples replaced the requested dataset."""
        return is_placeholder(vars(self))


class Resumption(Untrusted):
    """A process that resumed a run. ``epoch``: its first one, one too many if none was left."""

    epoch: Count
    hostname: str | None


class Repetition(Untrusted):
    """The result of training a run again."""

    is_identical: bool
    trainings: tuple[Training, ...]


class Run(Entry):
    """A run of this storage root, with ``curves`` by epoch and the evaluation in the schema of its problem."""

    curves: list[EpochMetrics] = []
    resumed: list[Resumption] = []
    evaluation: SerializeAsAny[Untrusted] | None = None
    repetition: Repetition | None = None


def or_none(read: Callable[..., _Read], *arguments: object, **options: object) -> _Read | None:
    """The result of a function that reads an artifact. None if that is damaged, which the log says."""
    try:
        return read(*arguments, **options)
    except DamagedArtifactError as error:
        _logger.warning("Run not included in the report. %s", error)
        return None


def from_package(name: str, call: Callable[[], _Read]) -> _Read | None:
    """The result of ``call``, for which ``name`` is imported. None if it is from outside and fails, as the log says."""
    try:
        return call()
    # Code from outside may raise anything.
    except Exception as error:
        if name.startswith("pipeline."):
            raise
        problem = f"{name} raised {type(error).__name__}: {error}. Repair or uninstall the package that has it."
        _logger.warning("left out of the report: %s", error if isinstance(error, PipelineError) else problem)
        return None


def of_problem(problem: str, field: str, *arguments: object) -> Any:
    """What the function of a problem's ``Results`` gives. None if there is none, or if it is from outside and fails."""
    name = getattr(results_of(problem), field)
    return from_package(name, partial(_called, problem, field, *arguments)) if name else None


def _called(problem: str, field: str, *arguments: object) -> Any:
    made = results_of(problem).hook(field)(*arguments)
    # A generator of a package raises its errors here.
    return list(made) if isinstance(made, Iterator) else made


def read_run(folder: Path) -> Run:
    """Read one run.

    Raises:
        DamagedArtifactError: A file is missing or damaged; names file and field.
    """
    record = read_record(folder)
    is_skipped = record.status == SKIPPED
    evaluation = None if is_skipped else _evaluation(folder, record.problem)
    fields = dict(record)
    if getattr(evaluation, "tokens", "") == BYTES:
        # Records before version 10 lack it.
        fields["tokens"] = BYTES
    return Run.model_construct(
        **fields,
        **_origin(folder),
        resumed=list(_resumptions(record)),
        fetched_from=(read_fetched(folder) or {"remote": ""})["remote"],
        curves=[] if is_skipped else [EpochMetrics(**row) for row in read_metrics(folder / METRICS_NAME)],
        evaluation=evaluation,
    )


def read_repetition(folder: Path) -> Repetition | None:
    """The result of training a run again, for its present weights. None if nobody did, or the file is damaged."""
    if (found := or_none(read_determinism, folder)) is None:
        return None
    return Repetition(is_identical=found.is_identical, trainings=(found.first, *found.again))


def _resumptions(run: RunRecord) -> Iterator[Resumption]:
    for segment in run.segments[1:]:
        yield Resumption(epoch=segment.first_epoch, hostname=segment.hostname)
    restored = run.epochs_restored
    if run.segments and restored >= run.segments[-1].last_epoch:
        # No epoch was left to train, so no segment shows the resumption.
        yield Resumption(epoch=restored + 1, hostname=run.finished_on)
    elif restored and not run.segments:
        # An earlier version recorded the last time alone.
        yield Resumption(epoch=restored + 1, hostname=run.hostname)


def _origin(folder: Path) -> dict[str, str | None]:
    if not (folder / MANIFEST_NAME).exists():
        return {"made_from": None, "code": None}
    identity = read_manifest(folder)["identity"]
    try:
        settings, upstream = dict(identity["settings"]), dict(identity["upstream"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f'"identity": expected settings and upstream, found other ({error!r})'
        raise DamagedArtifactError(message(folder / MANIFEST_NAME, problem)) from error
    # In the identity these have their names in the record.
    for name in ("global_batch_size", *names("setting", repeated=True)):
        settings.pop(name, None)
    return {
        "made_from": fingerprint({**identity, "settings": settings, "upstream": upstream}),
        "code": fingerprint({part: identity.get(part) for part in ("code", "packages")}),
    }


def _evaluation(folder: Path, problem: str) -> Any:
    path, results = folder / EVALUATION_NAME, results_of(problem)
    if not results.evaluation_schema or not path.exists():
        return None
    return from_package(
        results.evaluation_schema, lambda: checked(results.hook("evaluation_schema"), read_text(path), path)
    )
