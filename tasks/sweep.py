"""Sweep: which of a report's several runs is at work, and about how long the rest will take, for the log."""

import contextlib
import logging
import statistics
from collections.abc import Mapping, Sequence

import luigi

from pipeline.artefacts.manifest import read_manifest
from pipeline.errors import DamagedArtefactError
from tasks.process import console
from tasks.process.console import RUN_ID
from tasks.train import Train

_WORDS = {"global_batch_size": "batch"}

_logger = logging.getLogger(__name__)


def number(runs: Sequence[Train], combinations: Sequence[Mapping[str, object]]) -> None:
    """Name each of several runs by what differs between them, and let Luigi take them in this order."""
    for place, (run, combination) in enumerate(zip(runs, combinations, strict=True), 1):
        settings = [
            f", {_WORDS.get(name, name)} {value}"
            for name, value in combination.items()
            if any(other[name] != value for other in combinations)
        ]
        run.priority, run.sweep = len(runs) - place, runs
        run.place = f"run {place}/{len(runs)}{''.join(settings)}" if len(runs) > 1 else ""


def about(seconds: float) -> str:
    """A duration for people, no finer than an estimate is."""
    return f"{max(1, round(seconds)):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def left(runs: Sequence[Train]) -> str:
    """About how long the runs take that are still to be made; nothing before the first is done."""
    durations, pending = [], 0
    for run in runs:
        try:
            manifest = read_manifest(run.output().folder)
        except DamagedArtefactError:
            pending += 1
        else:
            # By whoever of this process and its workers made it; one that was skipped took no time.
            if manifest.get("run_id") == RUN_ID and "provisional" not in manifest:
                durations.append(manifest["seconds"])
    return f", about {about(pending * statistics.mean(durations))} left" if durations else ""


@Train.event_handler(luigi.Event.START)
def _begin(run: Train) -> None:
    if run.place:
        console.name_run(run.place)
        with contextlib.suppress(OSError):
            _logger.info("begins%s", left(run.sweep))


@Train.event_handler(luigi.Event.SUCCESS)
@Train.event_handler(luigi.Event.FAILURE)
def _end(*_: object) -> None:
    console.name_run("")
