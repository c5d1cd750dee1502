"""Experiments: each of ours once, seed 0, as its settings file has it, against its goal (13).

Three hours on two cores, two of them cifar10_94. The networks as others published them take hours more and have no goal
of their own: they are left to ``make pipeline``. PHOTOGRAPHS names the folder of the flowers where TFDS has not
prepared them.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from benchmarks.comparison import Comparison
from benchmarks.data import Bench
from pipeline.errors import SettingsError
from pipeline.report.facts.to_accuracy import to_accuracy
from pipeline.runs.metrics import METRICS_NAME, read_metrics
from pipeline.sources.prepared import is_prepared

PROJECT = Path(__file__).resolve().parent.parent
FLOWERS = "tf_flowers"


class Goal(NamedTuple):
    """What an experiment is to reach: a key of `run.json`, and how much of it."""

    experiment: str
    figure: str
    unit: str
    goal: float
    at_least: bool
    scale: float = 1


GOALS = (
    Goal("cifar10", "val_accuracy", "% of the test split", 72.42, True, 100),
    Goal("cifar10_90", "val_tta_accuracy", "% of the test split with test-time augmentation", 90, True, 100),
    Goal("cifar10_94", "val_tta_accuracy", "% of the test split with test-time augmentation", 94, True, 100),
    Goal("mnist_dense_published", "val_accuracy", "% of the test split", 97.5, True, 100),
    Goal("mnist_dense", "val_accuracy", "% of the test split", 98.3, True, 100),
    Goal("mnist_cnn", "val_accuracy", "% of the test split", 99.2, True, 100),
    Goal("fashion_cnn", "val_accuracy", "% of the test split", 92.5, True, 100),
    Goal("flowers", "val_accuracy", "% of the test split", 86.4, True, 100),
    Goal("shakespeare", "val_loss", "nats a character of the test split", 1.52, False),
)


def measure(bench: Bench) -> list[Comparison]:
    """Row 13, one for each experiment.

    Raises:
        SettingsError: the flowers are not there.
    """
    from_folder = _flowers(bench)
    comparisons = []
    with tempfile.TemporaryDirectory(dir=bench.folder) as root:
        for number, goal in enumerate(GOALS):
            print(f"  {goal.experiment} …", file=sys.stderr, flush=True)
            run = _run(goal.experiment, Path(root), from_folder if goal.experiment == "flowers" else [])
            comparisons.append(_comparison(f"13{chr(ord('a') + number)}", goal, run))
    return comparisons


def _flowers(bench: Bench) -> list[str]:
    if is_prepared(FLOWERS, bench.tfds_data_dir):
        return []
    if not (given := os.environ.get("PHOTOGRAPHS")):
        raise SettingsError("PHOTOGRAPHS: expected the path of flower_photos, as TFDS has no tf_flowers here")
    return ["--Source-dataset", "folder", "--Source-path", str(Path(given).expanduser().resolve())]


def _run(experiment: str, root: Path, flags: list[str]) -> dict:
    # Never on the stand-in.
    flags = flags or ["--Source-origin", "tfds"]
    command = [sys.executable, "-m", "tasks", "Train", "--Storage-root", str(root), *flags]
    # The measured processes shall find the threads they would find at a terminal.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP_")}
    environment |= {"TENSORCRAFT_EXPERIMENT": experiment}
    before = set(root.glob("runs/*/run.json"))
    subprocess.run(command, cwd=PROJECT, env=environment, check=True, stdout=sys.stderr)
    (record,) = set(root.glob("runs/*/run.json")) - before
    return {**json.loads(record.read_bytes()), "curves": read_metrics(record.with_name(METRICS_NAME))}


def _comparison(number: str, goal: Goal, run: dict) -> Comparison:
    return Comparison(
        number=number,
        what=f"experiment {goal.experiment}: {run['model']}, {run['epochs']} epochs, batch {run['global_batch_size']}",
        against="–",
        unit="s of training",
        ours=[run["train_seconds"]],
        figure=goal.unit,
        figures=[goal.scale * run[goal.figure]],
        goal=goal.goal,
        at_least=goal.at_least,
        limit=f"{run['examples_per_second']:,.0f} examples/s",
        note=", ".join(filter(None, map(_operations, to_accuracy(run)))),
    )


def _operations(one: dict) -> str:
    with_views = " with test-time augmentation" if one["with_views"] else ""
    return f"{one['flops']:.2e} FLOP to {one['goal']:.0%}{with_views}" if one["flops"] else ""
