"""Monitoring: the last scheduled run in figures, as a text file that Prometheus's node exporter collects.

Beside the data's way. Names follow Prometheus's conventions: base units in the name, times as seconds since the epoch.
"""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from pipeline.errors import PipelineError
from pipeline.problems.units import units_of
from pipeline.runs.record import RunRecord, names, read_record
from tasks.dag import from_below
from tasks.operations.incidents import Outcome
from tasks.operations.state_file import read_state
from tasks.report import Report
from tasks.train import Train

_PREFIX = "tensorcraft"


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What there is to say; what is not known is left out.

    Attributes:
        exit_code: of the run.
        ended_at: seconds since the epoch.
        seconds: how long it took.
        last_success: seconds since the epoch, None if there was none.
        stage_seconds: how long each stage took when it was last made.
        records: examples by split.
        runs: the records (run.json) of the runs asked for.
    """

    exit_code: int
    ended_at: float
    seconds: float
    last_success: float | None = None
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)
    runs: Iterable[RunRecord] = ()


def figures_of(outcome: Outcome, state_path: Path | None) -> Figures:
    """The run's own figures, and those of the artefacts the settings reach, as far as they have been made."""
    last_success = read_state(state_path)["last_success"] if state_path else None
    return Figures(
        exit_code=outcome.exit_code,
        ended_at=outcome.ended_at().timestamp(),
        seconds=outcome.seconds,
        last_success=datetime.fromisoformat(last_success).timestamp() if last_success else None,
        **_of_artefacts(),
    )


def write_figures(path: Path, figures: Figures) -> None:
    """Replace the file by one rename, as its reader may come at any moment.

    Raises:
        OSError: it cannot be written.
    """
    registry = CollectorRegistry()

    def gauge(name: str, says: str, value: float | None = None, labels: Iterable[str] = ()) -> Gauge:
        made = Gauge(f"{_PREFIX}_{name}", says, labels, registry=registry)
        if value is not None:
            made.set(value)
        return made

    gauge("run_exit_code", "Exit code of the last scheduled run.", figures.exit_code)
    gauge("run_duration_seconds", "Wall-clock time of the last scheduled run.", figures.seconds)
    gauge("run_end_timestamp_seconds", "When the last scheduled run ended.", figures.ended_at)
    if figures.last_success is not None:
        gauge("success_timestamp_seconds", "When the last scheduled run that succeeded ended.", figures.last_success)
    stages = gauge("stage_duration_seconds", "Wall-clock time of the stage when it was last made.", labels=["stage"])
    for stage, seconds in figures.stage_seconds.items():
        stages.labels(stage).set(seconds)
    records = gauge("records", "Examples in the records.", labels=["split"])
    for split, count in figures.records.items():
        records.labels(split).set(count)
    # Settings distinguish the runs of a sweep; fingerprints are no labels: every date would begin new time series.
    labels = ("experiment", *names("setting"), "precision")
    throughputs: dict[str, Gauge] = {}
    accuracy = gauge("test_accuracy_ratio", "Accuracy on the test split, from 0 to 1.", labels=labels)
    loss = gauge("test_loss_nats", "Loss on the test split, in nats an image, a character or a byte.", labels=labels)
    for run in figures.runs:
        values = [getattr(run, name) for name in labels]
        many = units_of(run.problem, run.tokens).many
        throughput = throughputs.get(many) or gauge(
            f"train_{many}_per_second", "Throughput of training.", labels=labels
        )
        throughputs[many] = throughput
        measured = ((throughput, run.examples_per_second), (accuracy, run.val_accuracy), (loss, run.val_loss))
        for metric, value in measured:
            if value is not None:
                metric.labels(*values).set(value)
    write_to_textfile(str(path), registry)


def _of_artefacts() -> dict:
    stage_seconds, records, runs = {}, {}, []
    with contextlib.suppress(PipelineError):
        for stage in from_below(Report()):
            if not stage.is_known() or stage.condition().state not in ("fresh", "stale"):
                continue
            with contextlib.suppress(PipelineError):
                manifest = stage.output().manifest()
                stage_seconds[stage.task_family] = manifest["seconds"]
                records |= {split: count["num_examples"] for split, count in manifest.get("splits", {}).items()}
                if isinstance(stage, Train):
                    runs.append(read_record(stage.output().folder))
    return {"stage_seconds": stage_seconds, "records": records, "runs": runs}
