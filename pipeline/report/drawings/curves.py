"""Curves: accuracy and loss by epoch, epoch and step time by batch, accuracy and throughput over the days."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.problems.units import units_of_all
from pipeline.report.drawings.drawing import COLOURS, MARKERS, MAX_LINES, SERIES_COLOUR, draw, heights, tick_sparsely
from pipeline.report.facts.series import spread

_MOST_DATES = 200


def draw_curves(runs: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draws accuracy (left) and loss (right) over epochs: test solid and marked, training dashed.

    Args:
        runs: The runs with their `curves`; the n-th is the series n of the page.
        alternative_text: What the drawing shows, for those who do not see it; plain text.

    Returns:
        See `draw`.
    """

    def plot(accuracy: Axes, loss: Axes) -> None:
        _plot_epochs(accuracy, runs, "accuracy")
        accuracy.set_title("Accuracy")
        tick_sparsely(accuracy.yaxis)
        accuracy.yaxis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:g} %"))
        _plot_epochs(loss, runs, "loss")
        loss.set_title("Loss")
        tick_sparsely(loss.yaxis)

    return draw(plot, alternative_text=alternative_text)


def draw_batch_sizes(lines: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draws seconds of an epoch (left) and milliseconds of a step (right) over the global batch.

    Args:
        lines: One to MAX_LINES lines with their `points`, as `batch_sizes` gives them.
        alternative_text: What the drawing shows, for those who do not see it; plain text.

    Returns:
        See `draw`.
    """

    def plot(epoch: Axes, step: Axes) -> None:
        _plot_batches(epoch, lines, "epoch_seconds", scale=1)
        epoch.set_title("Epoch time, s")
        _plot_batches(step, lines, "step_seconds", scale=1000)
        step.set_title("Step time, ms")

    return draw(plot, alternative_text=alternative_text)


def draw_history(groups: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draws test accuracy (left) and throughput (right) of groups of comparable runs over time, a line for each seed.

    Args:
        groups: One to MAX_LINES groups with their `points`, as `trends` gives them.
        alternative_text: What the drawing shows, for those who do not see it; plain text.

    Returns:
        See `draw`.
    """

    def plot(accuracy: Axes, rate: Axes) -> None:
        _plot_dates(accuracy, groups, "val_accuracy")
        accuracy.set_title("Test accuracy")
        accuracy.yaxis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:.4g} %"))
        _plot_dates(rate, groups, "examples_per_second")
        rate.set_title(units_of_all(groups).rate.capitalize())
        rate.yaxis.set_major_formatter(FuncFormatter(lambda figure, _: f"{figure:,.0f}"))

    return draw(plot, alternative_text=alternative_text)


def _plot_dates(axes: Axes, groups: Sequence[Mapping[str, Any]], figure: str) -> None:
    for group, colour, (marker, _) in zip(groups, COLOURS, MARKERS, strict=False):
        points = spread(group["points"], _MOST_DATES)
        # Runs of two seeds differ by chance: a line from one to the other would show a change that is none.
        for seed in sorted({point["seed"] for point in points}):
            same = [point for point in points if point["seed"] == seed]
            dates = [datetime.fromisoformat(point["finished_at"]) for point in same]
            values = heights(point[figure] for point in same)
            axes.plot(dates, values, color=colour, linewidth=1.2, marker=marker, markersize=5)
    locator = AutoDateLocator(minticks=2, maxticks=6)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    tick_sparsely(axes.yaxis)


def _plot_epochs(axes: Axes, runs: Sequence[Mapping[str, Any]], metric: str) -> None:
    # Of many runs fewer points each: the page stays small.
    most_points = 100 if len(runs) <= MAX_LINES else 40
    for place, run in enumerate(runs):
        marker, _ = MARKERS[place % MAX_LINES]
        rows = spread(run["curves"], most_points)
        epochs = [row["epoch"] for row in rows]
        # Lines of many epochs carry a dozen markers, not a hundred.
        every = max(1, len(rows) // 12)
        training, test = (heights(row[name] for row in rows) for name in (metric, f"val_{metric}"))
        series = {"color": SERIES_COLOUR, "gid": f"series-{place}"}
        axes.plot(epochs, training, linewidth=1.2, linestyle=(0, (4, 3)), alpha=0.75, **series)
        marks = {"marker": marker, "markersize": 5.5, "markevery": every}
        axes.plot(epochs, test, linewidth=2, **marks, **series)
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
    # Counts for the limits and is not seen: without it the room above the lines is a share of their spread alone.
    axes.axhline(0, visible=False)
    axes.set_ylim(bottom=0)
    tick_sparsely(axes.yaxis)
