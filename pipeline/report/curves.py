"""Curves: accuracy and loss by epoch of a few runs, and epoch and step time by batch of a few devices."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.report.drawing import COLOURS, MARKERS, draw, heights
from pipeline.report.formats import spread


def draw_curves(runs: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draws accuracy (left) and loss (right) over epochs: validation solid and marked, training dashed.

    Args:
        runs: One to MAX_LINES runs with their `curves`.
        alternative_text: What the drawing shows, for those who do not see it; plain text.

    Returns:
        One `<svg>` element, see `draw`.
    """

    def plot(accuracy: Axes, loss: Axes) -> None:
        _plot_epochs(accuracy, runs, "accuracy")
        accuracy.set_title("Accuracy")
        accuracy.yaxis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:g} %"))
        _plot_epochs(loss, runs, "loss")
        loss.set_title("Loss")

    return draw(plot, alternative_text=alternative_text)


def draw_batch_sizes(lines: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draws seconds of an epoch (left) and milliseconds of a step (right) over the global batch.

    Args:
        lines: One to MAX_LINES lines with their `points`, as `batch_sizes` gives them.
        alternative_text: What the drawing shows, for those who do not see it; plain text.

    Returns:
        One `<svg>` element, see `draw`.
    """

    def plot(epoch: Axes, step: Axes) -> None:
        _plot_batches(epoch, lines, "epoch_seconds", scale=1)
        epoch.set_title("Epoch time, s")
        _plot_batches(step, lines, "step_seconds", scale=1000)
        step.set_title("Step time, ms")

    return draw(plot, alternative_text=alternative_text)


def _plot_epochs(axes: Axes, runs: Sequence[Mapping[str, Any]], metric: str) -> None:
    for run, colour, (marker, _) in zip(runs, COLOURS, MARKERS, strict=False):
        rows = spread(run["curves"])
        epochs = [row["epoch"] for row in rows]
        # Lines of many epochs carry a dozen markers, not a hundred.
        every = max(1, len(rows) // 12)
        training, validation = (heights(row[name] for row in rows) for name in (metric, f"val_{metric}"))
        axes.plot(epochs, training, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), alpha=0.75)
        marks = {"marker": marker, "markersize": 5.5, "markevery": every}
        axes.plot(epochs, validation, color=colour, linewidth=2, **marks)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))


def _plot_batches(axes: Axes, lines: Sequence[Mapping[str, Any]], figure: str, *, scale: int) -> None:
    for line, colour, (marker, _) in zip(lines, COLOURS, MARKERS, strict=False):
        points = line["points"]
        batches = [point["global_batch_size"] for point in points]
        means = [point[figure]["mean"] for point in points]
        seconds = heights(None if mean is None else scale * mean for mean in means)
        axes.plot(batches, seconds, color=colour, linewidth=2, marker=marker, markersize=5.5)
    axes.set_xlabel("global batch")
    # Batches come in powers of two; each that was run is a tick, and none between.
    axes.set_xscale("log", base=2)
    axes.set_xticks(spread(sorted({point["global_batch_size"] for line in lines for point in line["points"]}), 12))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda batch, _: f"{batch:,.0f}"))
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
