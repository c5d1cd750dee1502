"""Metrics of the last scheduled run, as a text file for the textfile collector of Prometheus's node exporter.

Names follow the conventions of Prometheus, with base units and with times in seconds since the epoch.
"""

import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from pipeline.errors import PipelineError
from pipeline.problems.units import units_of
from pipeline.runs.record import RunRecord, names, read_record
from tasks.report import Report
from tasks.stage import stages_up_to
from tasks.train import Train

if TYPE_CHECKING:
    from tasks.schedule.scheduled import Outcome

# Settings distinguish the runs of a sweep. A fingerprint as label would begin new time series every day.
_LABELS = ("experiment", *names("setting"), "precision")
_OF_A_RUN = {
    "examples_per_second": ("train_{many}_per_second", "Throughput of training."),
    "test_accuracy": ("test_accuracy_ratio", "Accuracy on the test split, from 0 to 1."),
    "test_loss": ("test_loss_nats", "Loss on the test split, in nats per image, character or byte."),
}


def write_metrics(
    path: Path, outcome: "Outcome", manifests: Mapping[str, Mapping], runs: Iterable[RunRecord] = ()
) -> None:
    """Replace the file. ``manifests`` maps a stage to the manifest of its artifact."""
    registry, gauges = CollectorRegistry(), {}

    def put(name: str, text: str, value: float | None, **labels: object) -> None:
        """Set one sample, whose gauge begins with its first value. None leaves it out."""
        if value is None:
            return
        if name not in gauges:
            gauges[name] = Gauge(f"tensorcraft_{name}", text, tuple(labels), registry=registry)
        (gauges[name].labels(**labels) if labels else gauges[name]).set(value)

    put("run_exit_code", "Exit code of the last scheduled run.", outcome.exit_code)
    put("run_duration_seconds", "Wall-clock time of the last scheduled run.", outcome.seconds)
    put("run_end_timestamp_seconds", "When the last scheduled run ended.", outcome.ended_at().timestamp())
    success = outcome.last_success and datetime.fromisoformat(outcome.last_success).timestamp()
    put("success_timestamp_seconds", "When the last scheduled run that succeeded ended.", success)
    for stage, manifest in manifests.items():
        text = "Wall-clock time of the stage when it was last built."
        put("stage_duration_seconds", text, manifest.get("seconds"), stage=stage)
        for split, about in manifest.get("splits", {}).items():
            put("records", "Examples in the records.", about.get("num_examples"), split=split)
    for run in runs:
        labels = {name: getattr(run, name) for name in _LABELS}
        many = units_of(run.problem, run.tokens).plural
        for field, (name, text) in _OF_A_RUN.items():
            put(name.format(many=many), text, getattr(run, field), **labels)
    write_to_textfile(str(path), registry)


def current_artifacts() -> tuple[dict[str, Mapping], list[RunRecord]]:
    """The manifest of each stage of the present settings, and the records of their runs."""
    manifests, runs = {}, []
    with contextlib.suppress(PipelineError):
        for stage in stages_up_to(Report()):
            # An artifact that does not exist has no numbers.
            with contextlib.suppress(PipelineError):
                manifests[stage.task_family] = stage.output().manifest()
                if isinstance(stage, Train):
                    runs.append(read_record(stage.output().folder))
    return manifests, runs
