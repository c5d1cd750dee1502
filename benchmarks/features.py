"""Training of the last layer with features of the frozen layers, computed anew and read (row 5)."""

import shutil
import tempfile
from pathlib import Path

from benchmarks.comparison import Comparison, interleaved, speedup
from benchmarks.data import Bench
from benchmarks.experiments import run_report
from benchmarks.photographs import photographs


def measure(bench: Bench) -> list[Comparison]:
    """Row 5."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        root, seeds = Path(folder), iter(range(1_000))

        def train() -> float:
            flags = ["--Source-dataset", "folder", "--Source-path", str(photographs()), "--Train-fine-tune", "head"]
            return run_report("", root, [*flags, "--Train-seed", str(next(seeds))]).train_seconds

        def train_anew() -> float:
            shutil.rmtree(root / "features", ignore_errors=True)
            return train()

        values = interleaved({"computed": train_anew, "read": train}, bench.rounds)
    return [
        speedup(
            *("5", "the same with the features computed in the run", values["computed"], 20),
            what="training of the last layer of `efficientnet_lite0` on photographs, features read",
            unit="s",
            ours=values["read"],
            limit="–",
        )
    ]
