"""Training of the last layer with features of the frozen layers, computed anew and read (row 5)."""

import shutil
import tempfile
from pathlib import Path

from benchmarks.comparison import Comparison, interleaved, ratios
from benchmarks.data import Bench
from benchmarks.experiments import run_report
from benchmarks.photographs import photographs

_SETTINGS = ("--Train-fine-tune", "head")
_GOAL = 20


def measure(bench: Bench) -> list[Comparison]:
    """Row 5."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        root, seeds = Path(folder), iter(range(1_000))

        def train() -> float:
            flags = ["--Source-dataset", "folder", "--Source-path", str(photographs()), *_SETTINGS]
            return run_report("", root, [*flags, "--Train-seed", str(next(seeds))]).train_seconds

        def train_anew() -> float:
            shutil.rmtree(root / "features", ignore_errors=True)
            return train()

        values = interleaved({"computed": train_anew, "read": train}, bench.rounds)
    return [
        Comparison(
            number="5",
            what="training of the last layer of `efficientnet_lite0` on 3,670 photographs, features read",
            against="the same with the features computed in the run",
            unit="s",
            ours=values["read"],
            theirs=values["computed"],
            figure="times as fast",
            figures=ratios(values["computed"], values["read"]),
            goal=_GOAL,
            at_least=True,
            limit="–",
        )
    ]
