"""Published: figures that were published elsewhere, which the scoreboard shows below those measured here."""

from collections.abc import Mapping, Sequence
from typing import Any


def _published(scenario: str, requested: str, effective: str, seconds: float, rate: float, accuracy: float,
               note: str = "") -> dict[str, Any]:  # fmt: skip
    return {
        "scenario": scenario,
        "requested_device": requested,
        "effective_device": effective,
        "device_note": note,
        "dataset": "cifar10",
        "model": "baseline CNN",
        "epochs": 5,
        "train_seconds": seconds,
        "examples_per_second": rate,
        "val_accuracy": accuracy,
        "published_elsewhere": True,
        "source": "published figures of the tutorials this project grew from; 5 epochs × 50,000 images",
    }


# Figures as published: time in seconds, images per second over all epochs, accuracy as a fraction.
PUBLISHED: tuple[Mapping[str, Any], ...] = (
    _published("CPU runtime", "cpu", "cpu", 167.84, 1489, 0.7242),
    _published("GPU runtime", "gpu", "gpu", 34.66, 7213, 0.7336),
    _published("“TPU runtime”", "tpu", "cpu", 30.42, 8218, 0.7227, "the TPU's host: the resolver had failed"),
)


def published_beside(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The published figures that are about a dataset these runs used: beside any other they would mislead."""
    datasets = {run["dataset"] for run in runs}
    return [dict(row) for row in PUBLISHED if row["dataset"] in datasets]
