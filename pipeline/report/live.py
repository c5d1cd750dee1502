"""The page in the place of the report while a run trains."""

from collections.abc import Mapping, Sequence
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
from pipeline.report.report import build_report
from pipeline.report.sections import TERMINAL, sections
from pipeline.runs.metrics import METRICS_NAME, EpochMetrics, read_metrics

_MAX_ROWS = 20


def sections_of_runs(run_folders: Sequence[Path], current: Sequence[str]) -> list[Section]:
    """Return the scoreboard of the finished runs and their details, see ``build_report``."""
    return list(sections(build_report(run_folders, current=current), (*TERMINAL, "runs")))


def write_live_page(
    folder: Path,
    run_folder: Path,
    earlier: Sequence[Section],
    *,
    experiment: str,
    run: str,
    epochs: int,
    started_at: str,
    refresh_seconds: int,
) -> None:
    """Write report.html into ``folder`` from the metrics of a run that trains ``epochs`` epochs.

    The page reloads itself every ``refresh_seconds``, or never if they are 0, after a failure. ``run`` is a name. The
    sections ``earlier`` follow.

    Raises:
        DamagedArtifactError: The metrics are invalid.
        OSError: The page cannot be written.
    """
    metrics = run_folder / METRICS_NAME
    rows = read_metrics(metrics) if metrics.exists() else []
    state = "Training is running" if refresh_seconds else "Training was not finished"
    name = fmt.joined(fmt.plain(experiment), fmt.plain(run))
    age = f"This page was written at {datetime.now(UTC):%H:%M:%S} UTC"
    if refresh_seconds:
        # The newest epoch gives the estimate, because epoch 1 compiles.
        seconds = sum((row["train_seconds"] or 0) + (row["evaluation_seconds"] or 0) for row in rows[-1:])
        left = f"The remaining epochs take about {fmt.number((epochs - len(rows)) * seconds)} s. " if rows else ""
        age = f"{left}{age}, and again every {refresh_seconds} s. If it is a minute old, the training has ended"
    text = page(
        [Section("epochs", "Finished epochs", _blocks(rows)), *earlier],
        title=f"{state} ({len(rows)}/{epochs}), {name}",
        verdict=f"{state}. Experiment {name}, {len(rows)} of {fmt.plural(epochs, 'epoch')} finished, started at "
        f"{fmt.moment(started_at)}.",
        findings=[f"{age}. To resume after the last finished epoch, run the same command again."],
        reload_seconds=refresh_seconds,
    )
    (folder / REPORT_PAGE).write_text(text, encoding="utf-8", errors="replace", newline="\n")


def _blocks(epochs: Sequence[Mapping[str, Any]]) -> list[Block]:
    if not epochs:
        return [Text("The first epoch is not finished yet.")]
    run = SimpleNamespace(curves=[EpochMetrics(**row) for row in epochs], steps_per_epoch=None)
    newest = f"test accuracy {fmt.percent(epochs[-1]['test_accuracy'])} after epoch {fmt.number(len(epochs))}"
    caption = "Accuracy and loss by epoch, training and test"
    chart = Chart(caption, partial(drawings.plot_curves, [run], [""]), [newest], has_table=True)
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
