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
from pipeline.config.membership import membership
from pipeline.config.training import TrainSettings
from pipeline.errors import PipelineError, WorkerDiedError
from pipeline.hardware import tpu_vm
from pipeline.runs.initial import InitialWeights
from pipeline.runs.record import RunRecord, read_record
from pipeline.training import words
from pipeline.training.drawn import draw_weights

# What JAX writes before it ends a process because it hears that another is gone.
_JAX_SERVICE_ENDED = "JAX distributed service detected fatal errors"
# For the way out of a running step.
_GRACE_SECONDS, _GRACE_SECONDS_OF_SEVERAL = 20, 2

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
            "membership": asdict(membership(settings, tpu_vm.environment(settings))),
            "how": {name: str(value) if isinstance(value, Path) else value for name, value in how.items()},
        }
        _run(backend, job)
    return read_record(folder)


def _run(backend: str, job: dict) -> None:
    processes = job["membership"]["processes"]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as held_back:
        # JAX writes a stack trace for each process that it finds gone, whatever we say of it.
        failure, code = _heard_to_the_end(backend, job, held_back if processes > 1 else None)
        held_back.seek(0)
        written = held_back.read()
        is_told_by_jax = code == -signal.SIGABRT and _JAX_SERVICE_ENDED in written
        if not is_told_by_jax and not isinstance(failure, WorkerDiedError):
            sys.stderr.writelines(line for line in written.splitlines(keepends=True) if not line.startswith("[Gloo]"))
        if failure:
            raise failure
        if is_told_by_jax:
            raise WorkerDiedError(words.some_process_gone(processes))
        if code < 0:
            raise WorkerDiedError(
                f"[Train] backend: the process that trained on {backend} was ended by {signal.Signals(-code).name}, as "
                "the system does where memory is short. Finished epochs are kept, run again to resume."
            )
        if code:
            raise RuntimeError(f"the training on {backend} ended with exit code {code}; see above")


def _heard_to_the_end(backend: str, job: dict, stderr: IO[str] | None) -> tuple[PipelineError | None, int]:
    """The error that the process told of, and its exit code; ``stderr``: where it goes, None: where ours does."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        # Of the user's own modules too, which may lie where only this process looks.
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "pipeline.training"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        text=True,
        encoding="utf-8",
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
            # Of several each may wait in its step for the others, which are interrupted too.
            process.wait(_GRACE_SECONDS if job["membership"]["processes"] == 1 else _GRACE_SECONDS_OF_SEVERAL)
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
    return failure, process.returncode


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
