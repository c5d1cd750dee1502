"""The page in the place of the report while a run trains."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipeline.artifacts.layout import REPORT_PAGE
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Chart, Section, Table, Text, numbers
from pipeline.report.render import page
from pipeline.runs.metrics import METRICS_NAME, EpochMetrics, read_metrics

_MAX_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training for its page. The page is refreshed every ``refresh_seconds``, 0 after the training failed.

    ``run`` is the name of the run. ``started_at`` is in UTC.
    """

    experiment: str
    run: str
    epochs: int
    started_at: datetime
    refresh_seconds: int


def write_live_page(training: Training, run_folder: Path, folder: Path) -> None:
    """Write report.html of a training from the metrics in the folder of its run. The page reloads itself.

    Raises:
        DamagedArtifactError: The metrics are invalid.
        OSError: The page cannot be written.
    """
    metrics = run_folder / METRICS_NAME
    epochs = read_metrics(metrics) if metrics.exists() else []
    is_running = training.refresh_seconds > 0
    state = "Training is running" if is_running else "Training was not finished"
    name = fmt.joined("Experiment " + fmt.plain(training.experiment), fmt.plain(training.run))
    count = f"{fmt.number(len(epochs))} of {fmt.plural(training.epochs, 'epoch')} finished"
    remaining = (training.epochs - len(epochs)) * is_running
    # The newest epoch gives the estimate, because epoch 1 compiles.
    seconds = remaining * sum((row["train_seconds"] or 0) + (row["evaluation_seconds"] or 0) for row in epochs[-1:])
    age = f"This page was written at {_time(datetime.now(UTC))}"
    if is_running:
        age += f", and again every {training.refresh_seconds} s. If it is a minute old, the training has ended"
    text = page(
        [Section("epochs", "Finished epochs", _blocks(epochs, name))],
        title=fmt.joined(f"{state} ({len(epochs)}/{training.epochs})", fmt.plain(training.experiment)),
        verdict=f"{state}. {name}, {count}, started at {_time(training.started_at)}.",
        changes=[
            *([f"The remaining epochs take about {fmt.number(seconds)} s."] if seconds else []),
            f"{age}. To resume after the last finished epoch, run the same command again.",
        ],
        reload_seconds=training.refresh_seconds,
    )
    (folder / REPORT_PAGE).write_text(text, encoding="utf-8", errors="replace", newline="\n")


def _blocks(epochs: Sequence[Mapping[str, Any]], name: str) -> list[Block]:
    if not epochs:
        return [Text("The first epoch is not finished yet.")]
    run = SimpleNamespace(curves=[EpochMetrics(**row) for row in epochs], steps_per_epoch=None)
    chart = Chart(
        "Accuracy and loss by epoch, training and test",
        partial(drawings.plot_curves, [run], [""]),
        note="Solid lines show test, dashed lines training.",
        legend=[(name, "")],
        has_table=True,
    )
    columns = numbers("epoch", "accuracy", "test accuracy", "loss", "test loss", "training, s", "evaluation, s")
    rows = [
        [
            fmt.number(row["epoch"]),
            *(fmt.percent(row[metric]) for metric in ("accuracy", "test_accuracy")),
            *(fmt.number(row[metric], 3) for metric in ("loss", "test_loss")),
            *(fmt.number(row[metric], 1) for metric in ("train_seconds", "evaluation_seconds")),
        ]
        for row in reversed(epochs[-_MAX_ROWS:])
    ]
    return [chart, Table(columns, rows, label="Finished epochs, newest first")]


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
