"""Process: a training on another backend than Keras has in this process (… → stream → **training** → run → report).

Keras takes one backend for the life of a process, so a run on JAX is trained by ``python -m pipeline.training``. It is
given its job as JSON and says what happens as lines of JSON; what it logs and how far it is are heard as if it were
done here, and its errors are raised here. It ends with this process, whatever ends that.

The network's own initial weights are drawn here, by TensorFlow: the same seed begins with the same weights on either
backend.
"""

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import IO

from pipeline import errors, progress
from pipeline.config import TrainSettings
from pipeline.errors import PipelineError, WorkerDiedError
from pipeline.runs.initial import InitialWeights
from pipeline.runs.record import RunRecord, read_record
from pipeline.training.drawn import draw_weights

# For the way out of a running step.
_GRACE_SECONDS = 20

_logger = logging.getLogger(__name__)


def train_on(
    backend: str,
    records_folder: Path,
    settings: TrainSettings,
    folder: Path,
    *,
    initial: InitialWeights | None = None,
    **how: object,
) -> RunRecord:
    """As ``train`` does, in a process of its own on this backend.

    Raises:
        RuntimeError: the process ended without a word of ours; what it wrote to stderr is shown.
        WorkerDiedError: the process was killed.
        PipelineError: what ``train`` raises.
    """
    # Where what a killed process leaves is cleared away by the next.
    with tempfile.TemporaryDirectory(prefix=".drawn-", dir=folder.parent) as scratch:
        drawn = Path(scratch) / "drawn.safetensors"
        draw_weights(records_folder, settings, drawn)
        job = {
            "records_folder": str(records_folder),
            "settings": asdict(settings),
            "folder": str(folder),
            "drawn": str(drawn),
            "initial": initial and {name: value and str(value) for name, value in asdict(initial).items()},
            "how": {name: str(value) if isinstance(value, Path) else value for name, value in how.items()},
        }
        _run(backend, job)
    return read_record(folder)


def _run(backend: str, job: dict) -> None:
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        # Of the user's own modules too, which may lie where only this process looks.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, "-m", "pipeline.training"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True, encoding="utf-8"
    )
    try:
        # Its other end sees the end of this process, so it stays open.
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        failure = _hear(process.stdout)
        process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    finally:
        for pipe in (process.stdin, process.stdout):
            # What it can no longer read is of no use to it.
            try:
                pipe.close()
            except BrokenPipeError:
                continue
    if failure:
        raise failure
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        raise WorkerDiedError(
            f"[Train] backend: the process that trained on {backend} was ended by {name}, as the system does where "
            "memory is short. Finished epochs are kept, run again to resume."
        )
    if process.returncode:
        raise RuntimeError(f"the training on {backend} ended with exit code {process.returncode}; see above")


def _hear(lines: IO[str]) -> PipelineError | None:
    failure = None
    for line in lines:
        kind, values = json.loads(line)
        if kind == "progress":
            progress.tell(*values)
        elif kind == "log":
            name, level, message = values
            logging.getLogger(name).log(level, "%s", message)
        else:
            name, about = values
            mismatch = (about["mismatch"],) if about["mismatch"] else ()
            failure = getattr(errors, name)(about["message"], *mismatch)
    return failure
