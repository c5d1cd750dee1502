"""Scoreboard: finished runs to the report's data, the plain dict that becomes report.json.

No clock and no folder name enters the report: the same runs give the same report, on any machine.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.errors import DamagedArtefactError
from pipeline.report.batch_sizes import batch_sizes
from pipeline.report.comparison import with_speedups
from pipeline.report.reading import read_run
from pipeline.report.scenarios import scenarios

# 2: `current` is a list; `scenarios` and `batch_sizes` came.
SCHEMA_VERSION = 2

_logger = logging.getLogger(__name__)


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


def build_report(run_folders: Sequence[Path], *, current: Sequence[str]) -> dict[str, Any]:
    """Collects runs into the report's data.

    Args:
        run_folders: Folders of finished or skipped runs, in any order.
        current: Fingerprints of the runs the report is asked for; may be empty.

    Returns:
        `schema_version`, `current`, `runs` (as `read_run` gives them, newest first), `scenarios` (see scenarios.py
        and comparison.py), `batch_sizes` (see batch_sizes.py) and `published`. Seconds are wall-clock, rates are
        images per second, accuracies fractions from 0 to 1.

    A run that cannot be read is named in the log and left out: one bad folder must not cost all others their
    report.

    Raises:
        ValueError: No readable run has one of the fingerprints of `current`.
    """
    runs = sorted(_readable_runs(run_folders), key=_age_order, reverse=True)
    for asked_for in current:
        if asked_for not in {run["fingerprint"] for run in runs}:
            raise ValueError(f"current: expected fingerprints of the {len(runs)} runs, got {asked_for!r}")
    rows = with_speedups(scenarios(runs))
    return {
        "schema_version": SCHEMA_VERSION,
        "current": list(current),
        "runs": runs,
        "scenarios": rows,
        "batch_sizes": batch_sizes(rows),
        "published": [dict(row) for row in PUBLISHED],
    }


def _readable_runs(folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    seen = set()
    for folder in folders:
        try:
            run = read_run(folder)
        except DamagedArtefactError as error:
            _logger.warning("left out of the report: %s", error)
            continue
        # A copy beside its original is no second measurement.
        which = (run["fingerprint"], run["hostname"], run["finished_at"])
        if which not in seen:
            seen.add(which)
            yield run


def _age_order(run: Mapping[str, Any]) -> tuple[datetime, str, str]:
    return datetime.fromisoformat(run["finished_at"]), run["fingerprint"], run["hostname"] or ""
