"""Curves: accuracy and loss by epoch of a few runs, as one SVG to be put inside an HTML page.

Decisions: the Figure API without pyplot, so that nothing global is changed and no window system is asked for.
Text stays text and colours are the page's: the drawing follows the page's font, and its light or dark. Of a
run only figures enter the drawing, no text (the legend is the page's). The same runs give the same bytes.
"""

import html
import io
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.report.formats import spread

# (as matplotlib names the marker, as the page's legend writes it): shape tells runs apart without colour.
MARKERS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"), ("P", "✚"))
MAX_RUNS = len(MARKERS)

# matplotlib knows no CSS variables: it draws in these placeholders, then exchanged for the page's colours.
_INK = "#010203"
_PLACEHOLDERS = [f"#0a0b{place:02x}" for place in range(1, MAX_RUNS + 1)]
_PAGE_COLOURS = {_INK: "currentColor"} | {
    colour: f"var(--run-{place})" for place, colour in enumerate(_PLACEHOLDERS, start=1)
}

_STYLE = {
    "svg.hashsalt": "tensorcraft",
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.8,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 10,
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
_HIGHEST = 1e38
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw_curves(runs: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draws accuracy (left) and loss (right) over epochs: validation solid and marked, training dashed.

    Args:
        runs: One to MAX_RUNS runs with their `curves`; the n-th is drawn in the page's colour --run-n.
        alternative_text: What the drawing shows, for those who do not see it; plain text.

    Returns:
        One `<svg>` element for an HTML page: transparent, without scripts, links or fixed size.
    """
    with matplotlib.rc_context():
        # A matplotlibrc on this machine must not change the report.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        figure = _figure(runs)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    return _for_page(buffer.getvalue(), alternative_text)


def _figure(runs: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(10.4, 3.7))
    accuracy, loss = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.05, right=0.985, top=0.89, bottom=0.13, wspace=0.13)
    _plot(accuracy, runs, "accuracy")
    accuracy.set_title("Accuracy")
    accuracy.yaxis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:g} %"))
    _plot(loss, runs, "loss")
    loss.set_title("Loss")
    return figure


def _plot(axes: Axes, runs: Sequence[Mapping[str, Any]], metric: str) -> None:
    for run, colour, (marker, _) in zip(runs, _PLACEHOLDERS, MARKERS, strict=False):
        rows = spread(run["curves"])
        epochs = [row["epoch"] for row in rows]
        # Lines of many epochs carry a dozen markers, not a hundred.
        every = max(1, len(rows) // 12)
        training, validation = _heights(rows, metric), _heights(rows, f"val_{metric}")
        axes.plot(epochs, training, color=colour, linewidth=1.2, linestyle=(0, (4, 3)), alpha=0.75)
        marks = {"marker": marker, "markersize": 5.5, "markevery": every}
        axes.plot(epochs, validation, color=colour, linewidth=2, **marks)
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))


def _heights(rows: Sequence[Mapping[str, Any]], metric: str) -> list[float]:
    # A figure that is not finite leaves a gap in the line; so does one past float32, no axis could hold it.
    values = [row[metric] for row in rows]
    return [math.nan if value is None or not abs(value) < _HIGHEST else value for value in values]


def _for_page(svg: str, alternative_text: str) -> str:
    view_box = re.search(r'viewBox="([\d. ]+)"', svg)[1]
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    for placeholder, colour in _PAGE_COLOURS.items():
        body = body.replace(placeholder, colour)
    label = html.escape(alternative_text)
    return f'<svg viewBox="{view_box}" role="img" aria-label="{label}">{body.rstrip()}'
