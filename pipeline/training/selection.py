"""Selection: which epoch's weights a run keeps, and when its training ends ([Train] keep, patience; training's aid).

Both follow from the rows of the run's metrics, and so are the same after a resume. What is chosen is chosen on the
validation split, which the test split's figures know nothing of; by which of its figures says the problem.
"""

import math
from collections.abc import Mapping, Sequence

Rows = Sequence[Mapping[str, float]]

#: Why training ended: all epochs were trained, or the last so many were no better than one before.
ALL_EPOCHS, PATIENCE = "epochs", "patience"


def best_epoch(rows: Rows, figure: str) -> int:
    """The epoch, from 1, of the greatest "accuracy", or the least "loss", on the validation split; the first of equals.

    An epoch whose figure is not a number, as that of a training that went astray, is no better than any other.
    """
    merits = [_merit(row[f"validation_{figure}"], figure) for row in rows]
    return merits.index(max(merits)) + 1


def kept_epoch(rows: Rows, keep: str, figure: str) -> int:
    """The epoch, from 1, whose weights the run keeps: the ``last`` or the ``best`` by the figure."""
    return best_epoch(rows, figure) if keep == "best" else len(rows)


def has_lost_patience(rows: Rows, patience: int, figure: str) -> bool:
    """Whether the last ``patience`` epochs were no better than one before; 0: training goes on."""
    return bool(patience and rows) and len(rows) - best_epoch(rows, figure) >= patience


def _merit(value: float, figure: str) -> float:
    if math.isnan(value):
        return -math.inf
    return value if figure == "accuracy" else -value


def ended(rows: Rows, epochs: int) -> str:
    """Why training ended, of a run that was to have so many epochs; at the last of them it would have in any case."""
    return ALL_EPOCHS if len(rows) == epochs else PATIENCE
