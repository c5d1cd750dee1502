"""Experiments: each of ours once, seed 0, as its settings file has it, against its goals (13).

Two hours on two cores, more than half of them cifar10_96; ``make bench ARGS="experiments:flowers"`` measures one. The
networks as others published them have no goal of their own: they are left to ``make pipeline``. PHOTOGRAPHS names the
folder of the flowers where TFDS has not prepared them. MEASURED names a storage root: a run that is there already, of
the same code and settings, is not trained again, and one that is not stays there.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.comparison import Comparison
from benchmarks.data import Bench
from pipeline.errors import SettingsError
from pipeline.report.data.measures import Goal as ReachedGoal
from pipeline.report.data.measures import to_accuracy
from pipeline.report.data.reading import Run
from pipeline.report.formats import inputs
from pipeline.settings import SourceSettings
from pipeline.sources.tfds import Tfds

PROJECT = Path(__file__).resolve().parent.parent
FLOWERS = "tf_flowers"


class Goal(NamedTuple):
    """What an experiment is to reach: a key of `run.json`, how much of it, and in how many seconds of training."""

    experiment: str
    key: str
    goal: float
    seconds: float | None = None


GOALS = (
    Goal("cifar10", "test_accuracy", 72.42),
    Goal("cifar10_90", "test_tta_accuracy", 90, seconds=180),
    Goal("cifar10_94", "test_tta_accuracy", 94, seconds=720),
    Goal("cifar10_96", "test_tta_accuracy", 96),
    Goal("mnist_dense_published", "test_accuracy", 97.5),
    Goal("mnist_dense", "test_accuracy", 98.3, seconds=10),
    Goal("mnist_cnn", "test_accuracy", 99.2),
    Goal("fashion_cnn", "test_accuracy", 92.5, seconds=196),
    Goal("flowers", "test_accuracy", 86.4, seconds=1_200),
    Goal("shakespeare", "test_loss", 1.52, seconds=600),
    Goal("shakespeare_large", "test_loss", 1.48),
)
_FIGURES = {
    "test_accuracy": "% of the test split",
    "test_tta_accuracy": "% of the test split with test-time augmentation",
    "test_loss": "nats a character of the test split",
}


NAMES = tuple(goal.experiment for goal in GOALS)


def measure(bench: Bench, name: str) -> list[Comparison]:
    """Rows 13 of one experiment.

    Raises:
        SettingsError: the flowers are not there.
    """
    (goal,) = [goal for goal in GOALS if goal.experiment == name]
    flags = _flags(goal, bench)
    with tempfile.TemporaryDirectory(dir=bench.folder) as root:
        root = Path(os.environ.get("MEASURED") or root).expanduser().resolve()
        return list(_comparisons(goal, run_report(name, root, flags)))


def _flags(goal: Goal, bench: Bench) -> list[str]:
    flowers = Tfds(SourceSettings(dataset=FLOWERS, tfds_data_dir=bench.tfds_data_dir))
    if goal.experiment != "flowers" or flowers.is_at_hand():
        # Never on the stand-in.
        return ["--Source-origin", "tfds"]
    if not (given := os.environ.get("PHOTOGRAPHS")):
        raise SettingsError("PHOTOGRAPHS: expected the path of flower_photos, as TFDS has no tf_flowers here")
    return ["--Source-dataset", "folder", "--Source-path", str(Path(given).expanduser().resolve())]


def run_report(experiment: str, root: Path, flags: list[str]) -> Run:
    """Run the pipeline with the settings of an experiment, and return the run as the report has it."""
    command = [sys.executable, "-m", "tasks", "Report", "--Storage-root", str(root), *flags]
    # The measured processes shall find the threads they would find at a terminal.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP_")}
    environment |= {"TENSORCRAFT_EXPERIMENT": experiment} if experiment else {}
    if code := subprocess.run(command, cwd=PROJECT, env=environment, check=False, stdout=sys.stderr).returncode:
        raise SettingsError(f"{experiment} ended with exit code {code}: see above")
    return _requested(json.loads((root / "report" / "report.json").read_text(encoding="utf-8")))


def _requested(report: dict) -> Run:
    """The run that a report of all under its root was asked for."""
    (fingerprint,) = report["current"]
    (run,) = [one for one in report["runs"] if one["fingerprint"] == fingerprint]
    return Run.model_validate_json(json.dumps(run))


def _comparisons(goal: Goal, run: Run) -> Iterator[Comparison]:
    how = f"{run.model}, {run.epochs} epochs, batch {run.global_batch_size}, {inputs(run)}"
    rate = f"{run.examples_per_second:,.0f} {run.units.rate}"
    row = {
        "what": f"`{goal.experiment}`: {how}",
        "against": "–",
        "unit": "s of training",
        "ours": [run.train_seconds],
        "limit": "–",
        "note": ", ".join(filter(None, [rate, *map(_operations, to_accuracy(run))])),
    }
    is_share, figure = goal.key != "test_loss", getattr(run, goal.key)
    if figure is None:
        raise SettingsError(f"{goal.experiment}: expected a figure for {goal.key}, the run has none: it diverged")
    yield Comparison(
        number=f"13 {goal.experiment}",
        figure=_FIGURES[goal.key],
        figures=[100 * figure if is_share else figure],
        goal=goal.goal,
        at_least=is_share,
        **row,
    )
    if goal.seconds:
        yield Comparison(
            number=f"13 {goal.experiment}, time",
            figure="s of training",
            figures=[run.train_seconds],
            goal=goal.seconds,
            at_least=False,
            **row,
        )


def _operations(one: ReachedGoal) -> str:
    with_views = " with test-time augmentation" if one.with_views else ""
    return f"{one.flops:.2e} FLOP to {one.accuracy:.0%}{with_views}" if one.flops else ""
