"""Charts of the report as inline SVG, drawn by matplotlib.

The ``Figure`` class without pyplot changes no global state. Text and colors stay those of the page, so charts follow
its font and its light or dark scheme. The same data give the same bytes. Runs contribute only labels, as plain text.

A labeled line shows the label and the values of its points on hover. Lines with the gid LABELED show their labels at
their ends if all of them fit. Otherwise the page shows the legend of the chart.
"""

import html
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.style
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from pipeline.problems.problem import common_units
from pipeline.report.blocks import Chart
from pipeline.report.data.reading import Entry, Run
from pipeline.report.formats import spread

# Marker in matplotlib → sign in the page's legend. Shapes distinguish lines without color.
MARKERS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖", "*": "★"}
MAX_LINES = len(MARKERS)

# matplotlib has no CSS variables. It draws in placeholder colors, which the page's colors replace.
COLORS = [f"#0a0b{index:02x}" for index in range(1, MAX_LINES + 1)]
_PAGE_COLORS = {"#010203": "currentColor"} | {
    color: f"var(--run-{index})" for index, color in enumerate(COLORS, start=1)
}

_Point = tuple[float, float]

_STYLE = Path(__file__).parent / "templates" / "charts.mplstyle"
_MAX_HEIGHT = 1e38
_MAX_DATES = 200
_MAX_CURVE_POINTS = 100
LABELED = "labeled"
# Limits the elements of a page with many charts.
_MAX_HOVER_POINTS = 30
# Longer labels at the ends of lines would leave too little of the width. Lengths are in points.
_MAX_LABEL_LETTERS = 22
_LETTER_WIDTH, _LABEL_HEIGHT = 5.2, 11
# Inches.
_SMALL = (4.2, 2.8)
# Above this ratio of the largest to the smallest value, an axis is logarithmic. Settings are often powers of two.
_DECADE, _THREE_DOUBLINGS = 10, 7.9
_DASHES = (0, (4, 3))
_PERCENT = FuncFormatter(lambda fraction, _: f"{100 * fraction:.4g}%")
_SHORT = FuncFormatter(lambda value, _: f"{value:,.6g}")
_COUNT = FuncFormatter(lambda count, _: f"{count:,.0f}")
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def plot_shares(curves: Sequence[tuple[str, str, Sequence[_Point]]], *panels: Axes, has_diagonal: bool = False) -> None:
    """Plot curves of (x name, y name, points) with shares from 0 to 1, as steps or beside the line of equal shares."""
    for (x_name, y_name, points), axes in zip(curves, panels, strict=True):
        if has_diagonal:
            axes.plot([0, 1], [0, 1], color=COLORS[1], linewidth=1.2, linestyle=_DASHES)
        style = {"marker": "o", "markersize": 5.5} if has_diagonal else {"drawstyle": "steps-post"}
        axes.plot(*zip(*points, strict=True), color=COLORS[0], linewidth=2, label=y_name, **style)
        axes.set(title=f"{y_name.capitalize()} by {x_name}", xlabel=x_name, xlim=(0, 1), ylim=(0, 1.02))
        _tick_sparsely(axes)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(_PERCENT)
        axes.fmt_xdata, axes.fmt_ydata = f"{x_name} {{:.1%}}".format, "{:.1%}".format


def plot_values(points: Sequence[_Point], name: str, axes: Axes) -> None:
    """Plot predicted by actual values of examples, beside the line of right predictions."""
    ends = [end(map(end, points), default=0) for end in (min, max)]
    axes.plot(ends, ends, color=COLORS[1], linewidth=1.2, linestyle=_DASHES)
    axes.plot(*zip(*points, strict=True), color=COLORS[0], linestyle="none", marker="o", markersize=3, alpha=0.6)
    axes.set(title=name, xlabel="actual", ylabel="predicted")


def curve_chart(runs: Sequence[Run], names: Sequence[str], **options: Any) -> Chart:
    """Return the accuracy and the loss of runs with these names by epoch. Some runs have only a loss."""
    has_accuracy = any(row.test_accuracy is not None for run in runs for row in run.curves)
    title = "Accuracy and loss by epoch" if has_accuracy else "Loss by epoch"
    plot, panels = partial(plot_curves, runs, names), 1 + has_accuracy
    return Chart(f"{title}, training and test", plot, panels=panels, **options)


def plot_curves(runs: Sequence[Run], names: Sequence[str], *panels: Axes) -> None:
    """Plot accuracy (left) and loss (right) by epoch, with solid test lines with markers and dashed training lines.

    ``names`` are the labels of the runs.
    """
    steps = {run.steps_per_epoch for run in runs}
    step_note = f" of {steps.pop():,} steps" if len(steps) == 1 and None not in steps else ""
    # The name of a single run would not tell its lines apart.
    prefixes = [f"{name}, " for name in names] if len(runs) > 1 else [""]
    for axes, metric in zip(panels, ("accuracy", "loss")[-len(panels) :], strict=True):
        for run, prefix, color, marker in zip(runs, prefixes, COLORS, MARKERS, strict=False):
            rows = spread(run.curves, _MAX_CURVE_POINTS)
            epochs = [row.epoch for row in rows]
            training, test = (_heights(getattr(row, name) for row in rows) for name in (metric, f"test_{metric}"))
            gid = {} if prefix else {"gid": LABELED}
            dashes = {"linestyle": _DASHES, "alpha": 0.75}
            axes.plot(epochs, training, color=color, linewidth=1.2, label=f"{prefix}training", **dashes, **gid)
            # Long lines have about a dozen markers.
            marks = {"marker": marker, "markersize": 5.5, "markevery": max(1, len(rows) // 12), "gid": LABELED}
            axes.plot(epochs, test, color=color, linewidth=2, label=prefix.removesuffix(", ") or "test", **marks)
        axes.set(title=metric.capitalize(), xlabel=f"epoch{step_note}")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
        axes.fmt_xdata, axes.fmt_ydata = "epoch {:,.0f}".format, "{:.4g}".format
        if metric == "loss":
            _scale(axes.set_yscale, [value for line in axes.lines for value in line.get_ydata()])
        _tick_sparsely(axes, in_percent=metric == "accuracy")


class Sweep(NamedTuple):
    """Points of a panel, as lines of (x, y, deviation of y, label). An ``x`` that is a text is a category."""

    title: str
    x_name: str
    lines: Sequence[Sequence[tuple[Any, float, float | None, str]]]
    in_percent: bool
    is_connected: bool


def plot_sweeps(sweeps: Sequence[Sweep], *panels: Axes) -> None:
    """Plot a metric by a setting or by time, a panel per sweep."""
    for sweep, axes in zip(sweeps, panels, strict=True):
        xs = sorted({point[0] for line in sweep.lines for point in line}, key=lambda x: (isinstance(x, str), x))
        are_numbers = not any(isinstance(x, str) for x in xs)
        for points, color, marker in zip(sweep.lines, cycle(COLORS), cycle(MARKERS), strict=False):
            style = {"color": color, "marker": marker, "markersize": 5.5, "linewidth": 1.5 * sweep.is_connected}
            line = sorted(points, key=lambda point: xs.index(point[0]))
            places = [point[0] if are_numbers else xs.index(point[0]) for point in line]
            heights = _heights(point[1] for point in line)
            axes.plot(places, heights, label=line[0][3], gid=LABELED if sweep.is_connected else None, **style)
            spans = [(place, y, point[2]) for place, y, point in zip(places, heights, line, strict=True) if point[2]]
            axes.vlines([x for x, *_ in spans], [y - d for _, y, d in spans], [y + d for _, y, d in spans], color=color)
        axes.set(title=sweep.title, xlabel=sweep.x_name)
        axes.margins(0.08)
        if are_numbers:
            _scale(axes.set_xscale, xs, _THREE_DOUBLINGS if sweep.is_connected else _DECADE)
            if sweep.is_connected:
                # Only values of the setting are ticks.
                axes.set_xticks(spread(xs, 6))
            axes.minorticks_off()
            axes.xaxis.set_major_formatter(_SHORT)
            axes.fmt_xdata = lambda x, name=sweep.x_name: f"{name} {x:,.6g}"
        else:
            names = [x if isinstance(x, str) else f"{x:,.6g}" for x in xs]
            axes.set_xticks(range(len(xs)), names)
            axes.fmt_xdata = lambda x, names=names: names[round(x)]
        axes.yaxis.set_major_formatter(_SHORT)
        axes.fmt_ydata = "{:,.4g}".format
        _tick_sparsely(axes, in_percent=sweep.in_percent)


def plot_history(groups: Sequence[Sequence[Entry]], *panels: Axes) -> None:
    """Plot test accuracy (left) and throughput (right) of comparable runs by date, with a line per seed."""
    rate = common_units(group[0].units for group in groups).rate.capitalize()
    metric = ("Test accuracy", "test_accuracy", _PERCENT)
    if all(point.test_accuracy is None for group in groups for point in group):
        metric = ("Test loss", "test_loss", _SHORT)
    for axes, (title, field, formatter) in zip(panels, (metric, (rate, "examples_per_second", _COUNT)), strict=True):
        for group, color, marker in zip(groups, COLORS, MARKERS, strict=False):
            points = spread(group, _MAX_DATES)
            style = {"color": color, "linewidth": 1.2, "marker": marker, "markersize": 5}
            # Runs of different seeds differ by chance, so no line connects them.
            for seed in sorted({point.seed for point in points}):
                seed_points = [point for point in points if point.seed == seed]
                dates = [datetime.fromisoformat(point.finished_at) for point in seed_points]
                values = _heights(getattr(point, field) for point in seed_points)
                axes.plot(dates, values, label=f"seed {seed}", **style)
        axes.set_title(title)
        axes.fmt_xdata = lambda day: f"{num2date(day):%Y-%m-%d %H:%M} UTC"
        axes.fmt_ydata = lambda value, show=formatter: show(value)
        locator = AutoDateLocator(minticks=2, maxticks=6)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
        _tick_sparsely(axes)
        axes.yaxis.set_major_formatter(formatter)


class Drawing(NamedTuple):
    """A drawing for an HTML page. ``has_labels`` means that it needs no legend."""

    svg: Markup
    has_labels: bool


def draw(chart: Chart) -> Drawing:
    """Draw the panels, each as an ``<svg>``, in one ``<div>`` for an HTML page.

    They are transparent and have no scripts, links or fixed size. The n-th of COLORS becomes the page's color --run-n.
    """
    text, is_small = chart.alternative(), chart.panels != 2
    # The report must not depend on a matplotlibrc.
    with matplotlib.style.context(["default", _STYLE]):
        figures = [Figure(figsize=_SMALL if is_small else None) for _ in range(chart.panels)]
        panels = [figure.add_subplot() for figure in figures]
        chart.plot(*panels)
        has_labels = list(map(_label_ends, panels))
        drawings = [_svg(figure, salt=f"{text} {index}") for index, figure in enumerate(figures)]
    style = "panels small" if is_small else "panels"
    panels_tag = f'<div class="{style}" role="img" aria-label="{html.escape(text)}">'
    return Drawing(Markup(f"{panels_tag}{''.join(drawings)}</div>"), all(has_labels))


def _label_ends(axes: Axes) -> bool:
    """Write the labels of the lines to the right of the axes. Return whether they fit."""
    lines = [line for line in axes.lines if line.get_gid() == LABELED]
    ends = {line: next((y for y in reversed(line.get_ydata()) if math.isfinite(y)), None) for line in lines}
    letters = max((len(line.get_label()) for line in lines), default=0)
    if not 1 < len(lines) <= MAX_LINES or letters > _MAX_LABEL_LETTERS or None in ends.values():
        return False
    figure, (width, height) = axes.figure, axes.figure.get_size_inches() * 72
    figure.subplots_adjust(right=1 - (_LETTER_WIDTH * letters + 10) / width)
    axes.autoscale_view()
    axes.get_ylim()
    lowest, top, places = -math.inf, axes.bbox.y1, []
    for line in sorted(lines, key=ends.get):
        lowest = max(axes.transData.transform((axes.get_xlim()[0], ends[line]))[1], lowest + _LABEL_HEIGHT)
        places.append((line, lowest))
    for line, y in reversed(places):
        place = axes.bbox.x1 / width + 0.015, min(y, top) / height
        figure.text(*place, line.get_label(), color=line.get_color(), va="center")
        top = min(y, top) - _LABEL_HEIGHT
    return True


def _hover_points(axes: Axes) -> str:
    """Return transparent circles at the points of labeled lines, with their values as titles."""
    height = axes.figure.get_size_inches()[1] * 72
    circles = []
    for line in axes.lines:
        points = [point for point in line.get_xydata().tolist() if all(map(math.isfinite, point))]
        for x, y in [] if line.get_label().startswith("_") else spread(points, _MAX_HOVER_POINTS):
            left, bottom = axes.transData.transform((x, y))
            title = html.escape(f"{line.get_label()}, {axes.format_xdata(x)}: {axes.format_ydata(y)}")
            circles.append(f'<circle cx="{left:.1f}" cy="{height - bottom:.1f}" r="6"><title>{title}</title></circle>')
    return f'<g fill="transparent">{"".join(circles)}</g>' if circles else ""


def _scale(set_scale: Callable[[str], None], values: Iterable[float], max_ratio: float = _DECADE) -> None:
    """Make an axis logarithmic if the largest value exceeds the smallest by more than this ratio."""
    finite = [value for value in values if math.isfinite(value)]
    if finite and min(finite) > 0 and max(finite) / min(finite) > max_ratio:
        set_scale("log")


def _tick_sparsely(axes: Axes, *, in_percent: bool = False) -> None:
    """Place a handful of ticks at round numbers."""
    if in_percent:
        axes.yaxis.set_major_formatter(_PERCENT)
        axes.fmt_ydata = "{:.2%}".format
    is_log = axes.get_yscale() == "log"
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if is_log else MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    if is_log:
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(_SHORT)


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
    # matplotlib numbers its groups from 1 in each drawing. Nothing refers to these ids.
    body = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index(">", svg.index("<svg")) + 1 :])
    for placeholder, color in _PAGE_COLORS.items():
        body = body.replace(placeholder, color)
    hover = "".join(map(_hover_points, figure.axes))
    return f'<svg viewBox="{view_box}" aria-hidden="true">{body.rstrip().removesuffix("</svg>")}{hover}</svg>'
