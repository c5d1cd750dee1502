"""The page in the place of the report while a run trains."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

from pipeline.artifacts.layout import REPORT_PAGE
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Section, Text
from pipeline.report.render import page
from pipeline.report.report import build_report
from pipeline.report.sections import TERMINAL, sections
from pipeline.runs.metrics import METRICS_NAME, EpochMetrics, read_metrics


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
    sections ``earlier`` follow. DamagedArtifactError: The metrics are invalid.
    """
    metrics = run_folder / METRICS_NAME
    epochs_so_far = [EpochMetrics(**row) for row in read_metrics(metrics)] if metrics.exists() else []
    state = "Training is running" if refresh_seconds else "Training was not finished"
    name = fmt.joined(fmt.plain(experiment), fmt.plain(run))
    age = f"This page was written at {datetime.now(UTC):%H:%M:%S} UTC"
    if refresh_seconds:
        # The newest epoch gives the estimate, because epoch 1 compiles.
        seconds = sum((row.train_seconds or 0) + (row.evaluation_seconds or 0) for row in epochs_so_far[-1:])
        left = (epochs - len(epochs_so_far)) * seconds
        age = f"{age}, and again every {refresh_seconds} s. If it is a minute old, the training has ended"
        age = f"The remaining epochs take about {fmt.number(left)} s. {age}" if epochs_so_far else age
    blocks: list[Block] = [Text("" if epochs_so_far else "The first epoch is not finished yet.")]
    if epochs_so_far:
        curves = SimpleNamespace(curves=epochs_so_far, steps_per_epoch=None)
        last = epochs_so_far[-1]
        metric = f"test accuracy {fmt.percent(last.test_accuracy)}"
        metric = f"test loss {fmt.number(last.test_loss, 3)}" if last.test_accuracy is None else metric
        newest = f"{metric} after epoch {len(epochs_so_far)}"
        blocks.append(drawings.curve_chart([curves], [""], data=[newest]))
    text = page(
        [Section("epochs", "Finished epochs", blocks), *earlier],
        title=f"{state} ({len(epochs_so_far)}/{epochs}), {name}",
        verdict=f"{state}. Experiment {name}, {len(epochs_so_far)} of {fmt.plural(epochs, 'epoch')} finished, started "
        f"at {fmt.moment(started_at)}.",
        findings=[f"{age}. To resume after the last finished epoch, run the same command again."],
        reload_seconds=refresh_seconds,
    )
    (folder / REPORT_PAGE).write_text(text, encoding="utf-8", errors="replace", newline="\n")
