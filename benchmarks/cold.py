"""Start: from the command to the first training step, the status, and a run with nothing to do (row 3)."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.baselines import FIRST_STEP_DONE
from benchmarks.comparison import Comparison, interleaved, seconds_of
from benchmarks.data import Bench

PROJECT = Path(__file__).resolve().parent.parent
# The seed of a training that is never finished.
_SEED = "1"
# The stages train in a child process, too.
_IN_CHILD = "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)"


def measure(bench: Bench) -> list[Comparison]:
    """Row 3."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as root:
        settings = ["--Storage-root", root, "--Source-origin", "tfds", "--Train-epochs", "1"]
        make = ("make", "pipeline", f"ARGS={' '.join(settings)}")
        first_step = ("-c", _IN_CHILD, "-m", "benchmarks.baselines.first_step", str(bench.records_folder))
        _run(*make)
        values = interleaved(
            {
                "noop": lambda: seconds_of(lambda: _run(*make)),
                "status": lambda: seconds_of(lambda: _run(sys.executable, "-m", "tasks", "status", *settings)),
                "step": lambda: _seconds_until("Epoch 1/", "-m", "tasks", "run", *settings, "--Train-seed", _SEED),
                "step_alone": lambda: _seconds_until(FIRST_STEP_DONE, *first_step),
                "tasks": lambda: seconds_of(lambda: _run(sys.executable, "-c", "import tasks")),
                "luigi": lambda: seconds_of(lambda: _run(sys.executable, "-c", "import luigi")),
                "python": lambda: seconds_of(lambda: _run(sys.executable, "-c", "pass")),
            },
            bench.rounds,
            warm_up=True,
        )
    middle = {name: f"{median(seconds):.2f} s" for name, seconds in values.items()}
    luigi = f"starting Python {middle['python']}, importing Luigi {middle['luigi']}"
    more = [ours - alone for ours, alone in zip(values["step"], values["step_alone"], strict=True)]
    return [
        _row("3b", "`tensorcraft status`", values["status"], 0.3, luigi),
        _row("3c", "`make pipeline` with nothing to do", values["noop"], 0.3, luigi),
        _row("3e", '`python -c "import tasks"`', values["tasks"], 0.5, luigi),
        Comparison(
            number="3a",
            what="from the command to the end of the first 32 training steps, with fresh records",
            against="importing the framework, building the model and the same steps in a child process",
            unit="s",
            ours=values["step"],
            theirs=values["step_alone"],
            figure="s more",
            figures=more,
            goal=0.5,
            at_least=False,
            limit="–",
        ),
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


def _seconds_until(text: str, *arguments: str) -> float:
    """Seconds until a terminal shows a text of a Python program, which is then interrupted."""
    screen, terminal = pty.openpty()
    started, shown = time.perf_counter(), b""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=PROJECT, env=_environment(), stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        # If the program fails, nobody has the terminal open, and this raises an OSError.
        while text.encode() not in shown:
            shown += os.read(screen, 1 << 16)
        seconds = time.perf_counter() - started
        process.send_signal(signal.SIGINT)
        # A full terminal would block the process. The end of the process is an OSError.
        with contextlib.suppress(OSError):
            while os.read(screen, 1 << 16):
                pass
    os.close(screen)
    return seconds


def _run(*command: str) -> None:
    subprocess.run(command, cwd=PROJECT, env=_environment(), check=True, capture_output=True)


def _environment() -> dict[str, str]:
    # The measured processes shall find the threads they would find at a terminal.
    return {name: value for name, value in os.environ.items() if not name.startswith("TF_CPP_")}
