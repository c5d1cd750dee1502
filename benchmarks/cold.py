"""Start-up: the whole pipeline from nothing, a run with nothing to do, and the import of the tasks (10)."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.comparison import Comparison, interleaved, seconds_of
from benchmarks.data import Bench

PROJECT = Path(__file__).resolve().parent.parent


def measure(bench: Bench) -> list[Comparison]:
    """Row 10, its three parts."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as root:
        arguments = f"--Storage-root {root} --Source-origin tfds"
        cold = seconds_of(lambda: _run("make", "pipeline", f"ARGS={arguments}"))
        values = interleaved(
            {
                "noop": lambda: seconds_of(lambda: _run("make", "pipeline", f"ARGS={arguments}")),
                "import": lambda: seconds_of(lambda: _run(sys.executable, "-c", "import tasks")),
                "python": lambda: seconds_of(lambda: _run(sys.executable, "-c", "pass")),
                "tensorflow": lambda: seconds_of(lambda: _run(sys.executable, "-c", "import keras, tensorflow")),
            },
            bench.rounds,
            warm_up=True,
        )
    python = f"starting Python: {median(values['python']):.2f} s"
    imports = f"importing TensorFlow and Keras: {median(values['tensorflow']):.1f} s; the rest is training"
    return [
        _row("10a", "cold make pipeline, packages and dataset there", [cold], 60, imports),
        _row("10b", "make pipeline with nothing to do", values["noop"], 2, python),
        _row("10c", "python -c 'import tasks'", values["import"], 0.5, python),
    ]


def _row(number: str, what: str, seconds: list[float], goal: float, limit: str) -> Comparison:
    return Comparison(
        number=number,
        what=what,
        against="–",
        unit="s",
        ours=seconds,
        figure="s",
        figures=seconds,
        goal=goal,
        at_least=False,
        limit=limit,
    )


def _run(*command: str) -> None:
    # The measured processes shall find the threads they would find at a terminal.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP_")}
    subprocess.run(command, cwd=PROJECT, env=environment, check=True, capture_output=True)
