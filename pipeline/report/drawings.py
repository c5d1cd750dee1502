"""Charts of the report as inline SVG, drawn by matplotlib.

The Figure API without pyplot changes no global state. Text stays text and colors are the page's, so that a chart
follows the page's font and its light or dark scheme. The same data give the same bytes. Of a run only labels enter a
chart, as plain text.
"""

import html
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.problems.units import units_of_all
from pipeline.report.formats import spread

# (as matplotlib names the marker, as the page's legend writes it): shape tells lines apart without colour.
MARKERS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("P", "✚"))
MAX_LINES = len(MARKERS)

# matplotlib knows no CSS variables: it draws in these placeholders, then exchanged for the page's colours.
_INK = "#010203"
COLOURS = [f"#0a0b{place:02x}" for place in range(1, MAX_LINES + 1)]
SERIES_COLOUR = "#0a0bff"
_PAGE_COLOURS = {_INK: "currentColor", SERIES_COLOUR: "var(--series)"} | {
    colour: f"var(--run-{place})" for place, colour in enumerate(COLOURS, start=1)
}

_STYLE = {
    "svg.fonttype": "none",
    # A label may hold dollar signs.
    "text.parse_math": False,
    "font.size": 8,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.8,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 9,
    "axes.titlepad": 10,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": _INK,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.8,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
}
_INCHES = (5.0, 3.1)
_MARGINS = {"left": 0.11, "right": 0.98, "top": 0.88, "bottom": 0.15}
_HIGHEST = 1e38
_MOST_DATES = 200
_PERCENT = FuncFormatter(lambda fraction, _: f"{100 * fraction:g} %")
#: The most letters of a label below a bar.
LABEL_LETTERS = 16
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw_calibration(bins: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draw how often the network was right by how sure it was (left), and how often it was so sure (right)."""
    filled = [one for one in bins if one["accuracy"] is not None and one["confidence"] is not None]

    def plot(accuracy: Axes, examples: Axes) -> None:
        accuracy.plot([0, 1], [0, 1], color=COLOURS[1], linewidth=1.2, linestyle=(0, (4, 3)))
        accuracy.plot(
            [one["confidence"] for one in filled],
            [one["accuracy"] for one in filled],
            color=COLOURS[0],
            linewidth=2,
            marker="o",
            markersize=5.5,
        )
        accuracy.set_title("Accuracy by confidence")
        accuracy.set_ylim(0, 1.02)
        examples.bar(
            [(one["low"] + one["high"]) / 2 for one in bins],
            [one["examples"] for one in bins],
            width=0.8 / max(1, len(bins)),
            color=COLOURS[0],
        )
        examples.set_title("Examples by confidence")
        for axes in (accuracy, examples):
            axes.set_xlim(0, 1)
            axes.xaxis.set_major_formatter(_PERCENT)
            axes.set_xlabel("confidence")
            tick_sparsely(axes.yaxis)
        accuracy.yaxis.set_major_formatter(_PERCENT)

    return draw(plot, alternative_text=alternative_text)


def draw_labels(splits: Sequence[tuple[str, Sequence[tuple[str, int]]]], *, alternative_text: str) -> str:
    """Draw the examples of each label, a panel for each split. Names have at most LABEL_LETTERS letters."""

    def plot(*panels: Axes) -> None:
        for axes, (split, labels), colour in zip(panels, splits, COLOURS, strict=False):
            places = range(len(labels))
            axes.bar(places, [count for _, count in labels], color=colour, width=0.75)
            axes.set_xticks(places, [name for name, _ in labels], rotation=40, ha="right", rotation_mode="anchor")
            axes.set_title(f"Examples of {split}")
            tick_sparsely(axes.yaxis)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))

    margins = {"left": 0.11, "right": 0.98, "top": 0.88, "bottom": 0.27}
    return draw(plot, alternative_text=alternative_text, panels=len(splits), margins=margins)


def draw_curves(runs: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draw accuracy (left) and loss (right) over epochs: test solid and marked, training dashed."""

    def plot(accuracy: Axes, loss: Axes) -> None:
        _plot_epochs(accuracy, runs, "accuracy")
        accuracy.set_title("Accuracy")
        tick_sparsely(accuracy.yaxis)
        accuracy.yaxis.set_major_formatter(_PERCENT)
        _plot_epochs(loss, runs, "loss")
        loss.set_title("Loss")
        tick_sparsely(loss.yaxis)

    return draw(plot, alternative_text=alternative_text)


def draw_batch_sizes(lines: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draw seconds of an epoch (left) and milliseconds of a step (right) over the global batch."""

    def plot(epoch: Axes, step: Axes) -> None:
        _plot_batches(epoch, lines, "epoch_seconds", scale=1)
        epoch.set_title("Epoch time, s")
        _plot_batches(step, lines, "step_seconds", scale=1000)
        step.set_title("Step time, ms")

    return draw(plot, alternative_text=alternative_text)


def draw_history(groups: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draw test accuracy (left) and throughput (right) of groups of comparable runs over time, a line for each seed."""

    def plot(accuracy: Axes, rate: Axes) -> None:
        _plot_dates(accuracy, groups, "val_accuracy")
        accuracy.set_title("Test accuracy")
        accuracy.yaxis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:.4g} %"))
        _plot_dates(rate, groups, "examples_per_second")
        rate.set_title(units_of_all(groups).rate.capitalize())
        rate.yaxis.set_major_formatter(FuncFormatter(lambda figure, _: f"{figure:,.0f}"))

    return draw(plot, alternative_text=alternative_text)


def draw_positions(losses: Sequence[tuple[int, float | None]], *, alternative_text: str) -> str:
    """Draw the mean loss in nats of places in a sequence."""

    def plot(axes: Axes) -> None:
        axes.plot([place for place, _ in losses], heights(loss for _, loss in losses), color=COLOURS[0], linewidth=2)
        axes.set_title("Loss by place in the sequence, nats")
        axes.set_xlabel("place")
        # What happens with the first tokens is what there is to see.
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:,.0f}"))
        axes.minorticks_off()
        tick_sparsely(axes.yaxis)

    return draw(plot, alternative_text=alternative_text, panels=1)


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


def draw_seconds(parts: Sequence[tuple[str, float]], *, alternative_text: str) -> str:
    """A bar with a width for each of the seconds."""
    total = sum(seconds for _, seconds in parts)
    bars = "".join(f'<span style="width:{100 * seconds / total:.2f}%"></span>' for _, seconds in parts)
    return f'<div class="seconds-bar" role="img" aria-label="{html.escape(alternative_text)}">{bars}</div>'


def draw(
    plot: Callable[..., None], *, alternative_text: str, panels: int = 2, margins: Mapping[str, float] = _MARGINS
) -> str:
    """Draw panels, each an ``<svg>`` of its own, in one ``<div>`` for an HTML page.

    They are transparent, without scripts, links or fixed size. The n-th of COLOURS is the page's color --run-n. A group
    of the id ``series-3`` has ``data-series="3"``, and SERIES_COLOUR is --series: the page shows, hides and colors it.

    Args:
        plot: Draws into the axes of all panels.
        alternative_text: Plain text for those who do not see it.
        panels: Number of panels.
        margins: Ends of the axes of a panel, as shares of its width and height.
    """
    with matplotlib.rc_context():
        # A matplotlibrc on this machine must not change the report.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figures = [Figure(figsize=_INCHES) for _ in range(panels)]
        plot(*(figure.add_subplot() for figure in figures))
        drawings = [_svg(figure, margins, salt=f"{alternative_text} {place}") for place, figure in enumerate(figures)]
    return f'<div class="panels" role="img" aria-label="{html.escape(alternative_text)}">{"".join(drawings)}</div>'


def tick_sparsely(axis: Axis) -> None:
    """A handful of round figures."""
    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))


def heights(values: Iterable[float | None]) -> list[float]:
    """The values for an axis. A value that is not finite, or past float32, leaves a gap in the line."""
    return [math.nan if value is None or not abs(value) < _HIGHEST else value for value in values]


def _svg(figure: Figure, margins: Mapping[str, float], *, salt: str) -> str:
    # The ids within follow from it: a page with several drawings must hold each once.
    matplotlib.rcParams["svg.hashsalt"] = salt
    figure.subplots_adjust(**margins)
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    return _for_page(buffer.getvalue())


def _for_page(svg: str) -> str:
    view_box = re.search(r'viewBox="([\d. ]+)"', svg)[1]
    # A page may hold each id once, and several drawings may show the same series.
    svg = re.sub(r'<g id="series-(\d+)"', r'<g data-series="\1"', svg)
    # matplotlib numbers its groups from 1 in each drawing; nothing refers to them.
    body = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index(">", svg.index("<svg")) + 1 :])
    for placeholder, colour in _PAGE_COLOURS.items():
        body = body.replace(placeholder, colour)
    return f'<svg viewBox="{view_box}" aria-hidden="true">{body.rstrip()}'
