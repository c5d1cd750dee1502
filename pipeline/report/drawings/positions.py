"""Positions: the loss of a text by how much of it a network had seen."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from pipeline.report.drawings.drawing import COLOURS, draw, heights, tick_sparsely


def draw_positions(losses: Sequence[tuple[int, float | None]], *, alternative_text: str) -> str:
    """Draws the mean loss in nats of places in a sequence.

    Args:
        losses: Place, from 1, and loss, in the order of places.
        alternative_text: What the drawing shows, for those who do not see it; plain text.
    """

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
