"""Charts of the report as inline SVG, drawn by matplotlib.

The Figure API without pyplot changes no global state. Text stays text and colors are the page's, so that a chart
follows the page's font and its light or dark scheme. The same data give the same bytes. Of a run only labels enter a
chart, as plain text.
"""

import html
import io
import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.problems.units import common_units
from pipeline.report.blocks import Chart
from pipeline.report.data.history import Trend
from pipeline.report.data.reading import Run
from pipeline.report.data.scenarios import BatchLine
from pipeline.report.formats import spread
from pipeline.report.templating import TEMPLATES

if TYPE_CHECKING:
    from pipeline.report.sections.images import Bin

# Name in matplotlib → sign in the page's legend. The shape tells lines apart without color.
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}
MAX_LINES = len(MARKERS)

# matplotlib knows no CSS variables: it draws in these placeholders, then exchanged for the page's colors.
COLORS = [f"#0a0b{place:02x}" for place in range(1, MAX_LINES + 1)]
SERIES_COLOR = "#0a0bff"
_PAGE_COLORS = {"#010203": "currentColor", SERIES_COLOR: "var(--series)"} | {
    color: f"var(--run-{place})" for place, color in enumerate(COLORS, start=1)
}

_HIGHEST = 1e38
_MOST_DATES = 200
_DASHES = (0, (4, 3))
_PERCENT = FuncFormatter(lambda fraction, _: f"{100 * fraction:g}%")
_FINE_PERCENT = FuncFormatter(lambda fraction, _: f"{100 * fraction:.4g}%")
_COUNT = FuncFormatter(lambda count, _: f"{count:,.0f}")
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def plot_calibration(bins: Sequence["Bin"], accuracy: Axes, examples: Axes) -> None:
    """Plot how often the network was right by how sure it was (left), and how often it was so sure (right)."""
    filled = [one for one in bins if one.accuracy is not None and one.confidence is not None]
    accuracy.plot([0, 1], [0, 1], color=COLORS[1], linewidth=1.2, linestyle=_DASHES)
    points = [one.confidence for one in filled], [one.accuracy for one in filled]
    accuracy.plot(*points, color=COLORS[0], linewidth=2, marker="o", markersize=5.5)
    accuracy.set_ylim(0, 1.02)
    middles, counts = [(one.low + one.high) / 2 for one in bins], [one.examples for one in bins]
    examples.bar(middles, counts, width=0.8 / max(1, len(bins)), color=COLORS[0])
    for axes, name in ((accuracy, "Accuracy"), (examples, "Examples")):
        axes.set(title=f"{name} by confidence", xlabel="confidence", xlim=(0, 1))
        axes.xaxis.set_major_formatter(_PERCENT)
        _tick_sparsely(axes)
    accuracy.yaxis.set_major_formatter(_PERCENT)


def plot_curves(runs: Sequence[Run], *panels: Axes) -> None:
    """Plot accuracy (left) and loss (right) over epochs: test solid and marked, training dashed."""
    # Of many runs fewer points each: the page stays small.
    most_points = 100 if len(runs) <= MAX_LINES else 40
    for axes, metric in zip(panels, ("accuracy", "loss"), strict=True):
        for place, run in enumerate(runs):
            rows = spread(run.curves, most_points)
            epochs = [row.epoch for row in rows]
            training, test = (_heights(getattr(row, name) for row in rows) for name in (metric, f"test_{metric}"))
            series = {"color": SERIES_COLOR, "gid": f"series-{place}"}
            axes.plot(epochs, training, linewidth=1.2, linestyle=_DASHES, alpha=0.75, **series)
            # Lines of many epochs carry a dozen markers, not a hundred.
            marks = {"marker": [*MARKERS][place % MAX_LINES], "markersize": 5.5, "markevery": max(1, len(rows) // 12)}
            axes.plot(epochs, test, linewidth=2, **marks, **series)
        axes.set(title=metric.capitalize(), xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
        _tick_sparsely(axes)
    panels[0].yaxis.set_major_formatter(_PERCENT)


def plot_batch_sizes(lines: Sequence[BatchLine], *panels: Axes) -> None:
    """Plot seconds of an epoch (left) and milliseconds of a step (right) over the global batch."""
    batches = sorted({row.run.global_batch_size for line in lines for row in line.rows})
    shown = (("Epoch time, s", "epoch_seconds", 1), ("Step time, ms", "step_seconds", 1000))
    for axes, (title, figure, scale) in zip(panels, shown, strict=True):
        for line, color, marker in zip(lines, COLORS, MARKERS, strict=False):
            means = [getattr(row, figure).mean for row in line.by_batch]
            seconds = _heights(None if mean is None else scale * mean for mean in means)
            points = [row.run.global_batch_size for row in line.by_batch], seconds
            axes.plot(*points, color=color, linewidth=2, marker=marker, markersize=5.5)
        axes.set(title=title, xlabel="global batch")
        # Batches come in powers of two; each that was run is a tick, and none between.
        axes.set_xscale("log", base=2)
        axes.set_xticks(spread(batches, 12))
        axes.xaxis.set_major_formatter(_COUNT)
        axes.minorticks_off()
        # Counts for the limits and is not seen: without it the room above the lines is a share of their spread alone.
        axes.axhline(0, visible=False)
        axes.set_ylim(bottom=0)
        _tick_sparsely(axes)


def plot_history(groups: Sequence[Trend], *panels: Axes) -> None:
    """Plot test accuracy (left) and throughput (right) of groups of comparable runs over time, a line for each seed."""
    rate = common_units(group.entries[0].units for group in groups).rate.capitalize()
    shown = (("Test accuracy", "test_accuracy", _FINE_PERCENT), (rate, "examples_per_second", _COUNT))
    for axes, (title, figure, formatter) in zip(panels, shown, strict=True):
        for group, color, marker in zip(groups, COLORS, MARKERS, strict=False):
            points = spread(group.entries, _MOST_DATES)
            # Runs of two seeds differ by chance: a line from one to the other would show a change that is none.
            for seed in sorted({point.seed for point in points}):
                same = [point for point in points if point.seed == seed]
                dates = [datetime.fromisoformat(point.finished_at) for point in same]
                values = _heights(getattr(point, figure) for point in same)
                axes.plot(dates, values, color=color, linewidth=1.2, marker=marker, markersize=5)
        axes.set_title(title)
        locator = AutoDateLocator(minticks=2, maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        _tick_sparsely(axes)
        axes.yaxis.set_major_formatter(formatter)


def draw(chart: Chart) -> str:
    """Draw panels, each an ``<svg>`` of its own, in one ``<div>`` for an HTML page.

    They are transparent, without scripts, links or fixed size. The n-th of COLORS is the page's color --run-n. A group
    of the id ``series-3`` has ``data-series="3"``, and SERIES_COLOR is --series: the page shows, hides and colors it.
    """
    text = chart.alternative()
    # A matplotlibrc on this machine must not change the report.
    with matplotlib.style.context(["default", TEMPLATES / "charts.mplstyle"]):
        figures = [Figure() for _ in range(chart.panels)]
        chart.plot(*(figure.add_subplot() for figure in figures))
        drawings = [_svg(figure, salt=f"{text} {place}") for place, figure in enumerate(figures)]
    return f'<div class="panels" role="img" aria-label="{html.escape(text)}">{"".join(drawings)}</div>'


def _tick_sparsely(axes: Axes) -> None:
    """A handful of round figures."""
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))


def _heights(values: Iterable[float | None]) -> list[float]:
    """The values for an axis. A value that is not finite, or past float32, leaves a gap in the line."""
    return [math.nan if value is None or not abs(value) < _HIGHEST else value for value in values]


def _svg(figure: Figure, *, salt: str) -> str:
    # The ids within follow from it: a page with several drawings must hold each once.
    matplotlib.rcParams["svg.hashsalt"] = salt
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = buffer.getvalue()
    view_box = re.search(r'viewBox="([\d. ]+)"', svg)[1]
    # A page may hold each id once, and several drawings may show the same series.
    svg = re.sub(r'<g id="series-(\d+)"', r'<g data-series="\1"', svg)
    # matplotlib numbers its groups from 1 in each drawing; nothing refers to them.
    body = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index(">", svg.index("<svg")) + 1 :])
    for placeholder, color in _PAGE_COLORS.items():
        body = body.replace(placeholder, color)
    return f'<svg viewBox="{view_box}" aria-hidden="true">{body.rstrip()}'
