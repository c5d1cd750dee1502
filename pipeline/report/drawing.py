"""Drawing: what every drawing of the report shares, from the style to the `<svg>` inside the HTML page.

Decisions: the Figure API without pyplot, so that nothing global is changed and no window system is asked for.
Text stays text and colours are the page's: a drawing follows the page's font, and its light or dark. Of the
text of a run only its labels enter a drawing, as plain text. The same figures give the same bytes.
"""

import html
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping

import matplotlib
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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
_TWO_PANELS = {"left": 0.05, "right": 0.985, "top": 0.89, "bottom": 0.13, "wspace": 0.13}
_HIGHEST = 1e38
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw(
    plot: Callable[..., None],
    *,
    alternative_text: str,
    panels: int = 2,
    inches: tuple[float, float] = (10.4, 3.7),
    margins: Mapping[str, float] = _TWO_PANELS,
) -> str:
    """Draws one panel, or several side by side.

    Args:
        plot: Fills them, given as so many arguments, in COLOURS and MARKERS, or in SERIES_COLOUR what it gives an id
            such as `series-3`: the page shows, hides and colours it, see below.
        alternative_text: What the drawing shows, for those who do not see it; plain text.
        panels: How many.
        inches: Width and height; the page scales the drawing to its width.
        margins: Where the panels end, as shares of width and height, and their distance.

    Returns:
        One `<svg>` element for an HTML page: transparent, without scripts, links or fixed size. The n-th of COLOURS is
        the page's colour --run-n; a group of the id `series-3` has `data-series="3"`, and SERIES_COLOUR is --series.
    """
    with matplotlib.rc_context():
        # A matplotlibrc on this machine must not change the report.
        matplotlib.rcdefaults()
        # The ids within follow from it: a page with several drawings must hold each once.
        matplotlib.rcParams.update(_STYLE | {"svg.hashsalt": alternative_text})
        figure = Figure(figsize=inches)
        axes = figure.subplots(1, panels, squeeze=False)[0]
        figure.subplots_adjust(**margins)
        plot(*axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    return _for_page(buffer.getvalue(), alternative_text)


def tick_sparsely(axis: Axis) -> None:
    """A handful of round figures."""
    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))


def heights(values: Iterable[float | None]) -> list[float]:
    """The values as an axis takes them: one that is not finite leaves a gap in the line.

    So does one past float32: no axis could hold it.
    """
    return [math.nan if value is None or not abs(value) < _HIGHEST else value for value in values]


def _for_page(svg: str, alternative_text: str) -> str:
    view_box = re.search(r'viewBox="([\d. ]+)"', svg)[1]
    # A page may hold each id once, and several drawings may show the same series.
    svg = re.sub(r'<g id="series-(\d+)"', r'<g data-series="\1"', svg)
    # matplotlib numbers its groups from 1 in each drawing; nothing refers to them.
    body = re.sub(r'<g id="[^"]*"', "<g", svg[svg.index(">", svg.index("<svg")) + 1 :])
    for placeholder, colour in _PAGE_COLOURS.items():
        body = body.replace(placeholder, colour)
    label = html.escape(alternative_text)
    return f'<svg viewBox="{view_box}" role="img" aria-label="{label}">{body.rstrip()}'
