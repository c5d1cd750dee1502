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
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


def draw(
    plot: Callable[..., None],
    *,
    alternative_text: str,
    panels: int = 2,
    margins: Mapping[str, float] = _MARGINS,
) -> str:
    """Draws panels, each an `<svg>` of its own: the page puts them side by side or one below the other.

    Args:
        plot: Fills them, given as so many arguments, in COLOURS and MARKERS, or in SERIES_COLOUR what it gives an id
            such as `series-3`: the page shows, hides and colours it, see below.
        alternative_text: What the drawing shows, for those who do not see it; plain text.
        panels: How many.
        margins: Where the axes of a panel end, as shares of its width and height.

    Returns:
        One `<div>` for an HTML page: its `<svg>` are transparent, without scripts, links or fixed size. The n-th of
        COLOURS is the page's colour --run-n; a group of the id `series-3` has `data-series="3"`, and SERIES_COLOUR is
        --series.
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
    """The values as an axis takes them: one that is not finite leaves a gap in the line.

    So does one past float32: no axis could hold it.
    """
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
