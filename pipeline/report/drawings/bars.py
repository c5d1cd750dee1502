"""Bars: how often a run was right by how sure it was, and how many examples a label has."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from pipeline.report.drawings.drawing import COLOURS, draw, tick_sparsely

_PERCENT = FuncFormatter(lambda fraction, _: f"{100 * fraction:g} %")
#: Longer names of labels would not fit below their bars.
LABEL_LETTERS = 16


def draw_calibration(bins: Sequence[Mapping[str, Any]], *, alternative_text: str) -> str:
    """Draws how often the network was right by how sure it was (left), and how often it was so sure (right).

    Args:
        bins: As the run's evaluation has them.
        alternative_text: What the drawing shows, for those who do not see it; plain text.
    """
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
    """Draws how many examples of each label a split has, a panel for each split.

    Args:
        splits: Each split's name with its labels and their examples; names are plain text of LABEL_LETTERS at most.
        alternative_text: What the drawing shows, for those who do not see it; plain text.
    """

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
