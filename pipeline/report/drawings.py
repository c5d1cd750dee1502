"""Charts of the report as inline SVG, drawn by matplotlib.

The ``Figure`` class without pyplot changes no global state. Text and colors stay those of the page, so charts follow
its font and its light or dark scheme. The same data give the same bytes. Runs contribute only labels, as plain text.
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

# Marker in matplotlib → sign in the page's legend. Shapes distinguish lines without color.
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚"}
MAX_LINES = len(MARKERS)

# matplotlib has no CSS variables. It draws in placeholder colors, which the page's colors replace.
COLORS = [f"#0a0b{index:02x}" for index in range(1, MAX_LINES + 1)]
SERIES_COLOR = "#0a0bff"
_PAGE_COLORS = {"#010203": "currentColor", SERIES_COLOR: "var(--series)"} | {
    color: f"var(--run-{index})" for index, color in enumerate(COLORS, start=1)
}

_MAX_HEIGHT = 1e38
_MAX_DATES = 200
_DASHES = (0, (4, 3))
_PERCENT = FuncFormatter(lambda fraction, _: f"{100 * fraction:g}%")
_FINE_PERCENT = FuncFormatter(lambda fraction, _: f"{100 * fraction:.4g}%")
_COUNT = FuncFormatter(lambda count, _: f"{count:,.0f}")
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def plot_calibration(bins: Sequence["Bin"], accuracy: Axes, examples: Axes) -> None:
    """Plot accuracy by confidence (left) and the number of examples by confidence (right)."""
    nonempty = [bin_ for bin_ in bins if bin_.accuracy is not None and bin_.confidence is not None]
    accuracy.plot([0, 1], [0, 1], color=COLORS[1], linewidth=1.2, linestyle=_DASHES)
    points = [bin_.confidence for bin_ in nonempty], [bin_.accuracy for bin_ in nonempty]
    accuracy.plot(*points, color=COLORS[0], linewidth=2, marker="o", markersize=5.5)
    accuracy.set_ylim(0, 1.02)
    middles, counts = [(bin_.low + bin_.high) / 2 for bin_ in bins], [bin_.examples for bin_ in bins]
    examples.bar(middles, counts, width=0.8 / max(1, len(bins)), color=COLORS[0])
    for axes, name in ((accuracy, "Accuracy"), (examples, "Examples")):
        axes.set(title=f"{name} by confidence", xlabel="confidence", xlim=(0, 1))
        axes.xaxis.set_major_formatter(_PERCENT)
        _tick_sparsely(axes)
    accuracy.yaxis.set_major_formatter(_PERCENT)


def plot_curves(runs: Sequence[Run], *panels: Axes) -> None:
    """Plot accuracy (left) and loss (right) by epoch, with solid test lines with markers and dashed training lines."""
    # Many runs get fewer points each, to limit the size of the page.
    max_points = 100 if len(runs) <= MAX_LINES else 40
    for axes, metric in zip(panels, ("accuracy", "loss"), strict=True):
        for index, run in enumerate(runs):
            rows = spread(run.curves, max_points)
            epochs = [row.epoch for row in rows]
            training, test = (_heights(getattr(row, name) for row in rows) for name in (metric, f"test_{metric}"))
            series = {"color": SERIES_COLOR, "gid": f"series-{index}"}
            axes.plot(epochs, training, linewidth=1.2, linestyle=_DASHES, alpha=0.75, **series)
            # Long lines have about a dozen markers.
            marks = {"marker": [*MARKERS][index % MAX_LINES], "markersize": 5.5, "markevery": max(1, len(rows) // 12)}
            axes.plot(epochs, test, linewidth=2, **marks, **series)
        axes.set(title=metric.capitalize(), xlabel="epoch")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
        _tick_sparsely(axes)
    panels[0].yaxis.set_major_formatter(_PERCENT)


def plot_batch_sizes(lines: Sequence[BatchLine], *panels: Axes) -> None:
    """Plot seconds per epoch (left) and milliseconds per step (right) by global batch size."""
    batches = sorted({row.run.global_batch_size for line in lines for row in line.rows})
    panels_data = (("Epoch time, s", "epoch_seconds", 1), ("Step time, ms", "step_seconds", 1000))
    for axes, (title, field, scale) in zip(panels, panels_data, strict=True):
        for line, color, marker in zip(lines, COLORS, MARKERS, strict=False):
            means = [getattr(row, field).mean for row in line.by_batch]
            seconds = _heights(None if mean is None else scale * mean for mean in means)
            points = [row.run.global_batch_size for row in line.by_batch], seconds
            axes.plot(*points, color=color, linewidth=2, marker=marker, markersize=5.5)
        axes.set(title=title, xlabel="global batch")
        # Batch sizes are powers of two. Only measured sizes are ticks.
        axes.set_xscale("log", base=2)
        axes.set_xticks(spread(batches, 12))
        axes.xaxis.set_major_formatter(_COUNT)
        axes.minorticks_off()
        # An invisible line at 0 makes the margin above the lines a share of the whole axis.
        axes.axhline(0, visible=False)
        axes.set_ylim(bottom=0)
        _tick_sparsely(axes)


def plot_history(groups: Sequence[Trend], *panels: Axes) -> None:
    """Plot test accuracy (left) and throughput (right) of comparable runs by date, with a line per seed."""
    rate = common_units(group.entries[0].units for group in groups).rate.capitalize()
    panels_data = (("Test accuracy", "test_accuracy", _FINE_PERCENT), (rate, "examples_per_second", _COUNT))
    for axes, (title, field, formatter) in zip(panels, panels_data, strict=True):
        for group, color, marker in zip(groups, COLORS, MARKERS, strict=False):
            points = spread(group.entries, _MAX_DATES)
            # Runs of different seeds differ by chance, so no line connects them.
            for seed in sorted({point.seed for point in points}):
                seed_points = [point for point in points if point.seed == seed]
                dates = [datetime.fromisoformat(point.finished_at) for point in seed_points]
                values = _heights(getattr(point, field) for point in seed_points)
                axes.plot(dates, values, color=color, linewidth=1.2, marker=marker, markersize=5)
        axes.set_title(title)
        locator = AutoDateLocator(minticks=2, maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        _tick_sparsely(axes)
        axes.yaxis.set_major_formatter(formatter)


def draw(chart: Chart) -> str:
    """Draw the panels, each as an ``<svg>``, in one ``<div>`` for an HTML page.

    They are transparent and have no scripts, links or fixed size. The n-th of COLORS becomes the page's color --run-n.
    SERIES_COLOR becomes --series. A group with the id ``series-3`` gets ``data-series="3"``, so that the page can hide
    and color it.
    """
    text = chart.alternative()
    # The report must not depend on a matplotlibrc.
    with matplotlib.style.context(["default", TEMPLATES / "charts.mplstyle"]):
        figures = [Figure() for _ in range(chart.panels)]
        chart.plot(*(figure.add_subplot() for figure in figures))
        drawings = [_svg(figure, salt=f"{text} {index}") for index, figure in enumerate(figures)]
    return f'<div class="panels" role="img" aria-label="{html.escape(text)}">{"".join(drawings)}</div>'


def _tick_sparsely(axes: Axes) -> None:
    """Place a handful of ticks at round numbers."""
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))


def _heights(values: Iterable[float | None]) -> list[float]:
    """Return the values for an axis. Values that are not finite in float32 leave a gap."""
    return [math.nan if value is None or not abs(value) < _MAX_HEIGHT else value for value in values]


def _svg(figure: Figure, *, salt: str) -> str:
    # The salt makes the ids of each drawing unique on the page.
    matplotlib.rcParams["svg.hashsalt"] = salt
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = buffer.getvalue()
    view_box = re.search(r'viewBox="([\d. ]+)"', svg)[1]
    # Several drawings may show the same series, but ids must be unique on a page.
    svg = re.sub(r'<g id="series-(\d+)"', r'<g data-series="\1"', svg)
    # matplotlib numbers its groups from 1 in each drawing. Nothing refers to these ids.
    body = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index(">", svg.index("<svg")) + 1 :])
    for placeholder, color in _PAGE_COLORS.items():
        body = body.replace(placeholder, color)
    return f'<svg viewBox="{view_box}" aria-hidden="true">{body.rstrip()}'
