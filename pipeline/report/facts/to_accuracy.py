"""To accuracy: what a run took until an epoch ended at 90, 92 or 94 % of the test split, in operations and seconds.

Operations do not depend on the machine, or on who else computes on it: by them a recipe is compared with another, by
seconds a machine. They do depend on the backend that counts them, by about a tenth (docs/hardware.md).
"""

from collections.abc import Mapping
from typing import Any

from pipeline.problems.units import IMAGE_CLASSIFICATION

#: What CIFAR-10 is trained to: DAWNBench's goal (Coleman et al. 2017), and two on the way there.
GOALS = (0.90, 0.92, 0.94)

# Accuracies are float32, in which nine of ten images are a little less than 0.9.
_ROUNDING = 1e-6


def to_accuracy(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Of each goal the first epoch that reached it without test-time augmentation; else the one kept, if that did with.

    Returns:
        ``goal`` from 0 to 1, ``epoch`` from 1, training ``seconds`` and ``flops`` up to its end, None where they are
        not known; ``with_views`` where it took test-time augmentation, which is evaluated after training.
    """
    if run["problem"] != IMAGE_CLASSIFICATION or not run["curves"]:
        return []
    step_flops, steps = (run["time_breakdown"] or {}).get("step_flops"), run["steps_per_epoch"]
    found, rows = [], run["curves"]
    for goal in GOALS:
        place = next((at for at, row in enumerate(rows) if _reached(row["val_accuracy"], goal)), None)
        with_views = place is None and _reached(run["val_tta_accuracy"], goal)
        if with_views:
            # Seen with the weights that were kept.
            kept = run["kept_epoch"] or rows[-1]["epoch"]
            place = next((at for at, row in enumerate(rows) if row["epoch"] == kept), None)
        if place is None:
            continue
        seconds = [row["train_seconds"] for row in rows[: place + 1]]
        epoch = rows[place]["epoch"]
        found.append(
            {
                "goal": goal,
                "epoch": epoch,
                "with_views": with_views,
                "seconds": None if None in seconds else sum(seconds),
                "flops": step_flops * steps * epoch if step_flops and steps else None,
            }
        )
    return found


def _reached(accuracy: float | None, goal: float) -> bool:
    return (accuracy or 0) >= goal - _ROUNDING
