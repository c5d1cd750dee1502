"""Throughput: the epochs of a run to seconds an epoch and images a second (… → training → runs → report).

The one definition, for training and for all that compares runs: the first epoch of each process that trained the run
compiles, and is left out wherever another is there.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

#: One row of metrics.jsonl: of it ``epoch``, from 1, and ``train_seconds`` are used.
Row = Mapping[str, Any]


def compiling_epochs(run: Mapping[str, Any]) -> frozenset[int]:
    """The epochs of a run, from 1, that compiled.

    Args:
        run: its record; one made before records had ``segments`` knows of its last resumption only.
    """
    if segments := run.get("segments"):
        return frozenset(segment["first_epoch"] for segment in segments)
    return frozenset((1, run["epochs_restored"] + 1))


def epoch_seconds(rows: Sequence[Row], compiling: Collection[int]) -> float | None:
    """Mean seconds of an epoch that did not compile; None where each one did, and where one is unknown or infinite."""
    seconds = [row["train_seconds"] for row in rows if row["epoch"] not in compiling]
    if not seconds or None in seconds:
        return None
    mean = sum(seconds) / len(seconds)
    return mean if math.isfinite(mean) else None


def examples_per_second(rows: Sequence[Row], compiling: Collection[int], *, examples_per_epoch: int) -> float:
    """Examples trained on per second, without the epochs that compiled, unless each one did."""
    seconds = epoch_seconds(rows, compiling) or epoch_seconds(rows, ())
    return examples_per_epoch / seconds


def compilation_seconds(rows: Sequence[Row], compiling: Collection[int]) -> float | None:
    """What the epochs that compiled took longer than as many others; None where there are no others to tell by.

    None as well where they were no slower: the compilation is then lost in the machine's noise.
    """
    steady = epoch_seconds(rows, compiling)
    if steady is None:
        return None
    longer = sum(row["train_seconds"] - steady for row in rows if row["epoch"] in compiling)
    return longer if longer > 0 else None
