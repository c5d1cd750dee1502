"""Run functions of the stages in a child process, so that the calling process imports no numerical library.

The parent writes jobs as JSON lines to the child's standard input, which ends with the parent and ends the child. The
child answers with JSON lines: log records, progress, and last a result or an error.
"""

import atexit
import contextlib
import faulthandler
import json
import logging
import os
import pkgutil
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pipeline import errors, machine, progress
from pipeline.errors import PipelineError, WorkerDiedError, causes, error_for_user

#: Call the functions in this process if this variable is 1, for debuggers.
IN_PROCESS = "TENSORCRAFT_IN_PROCESS"
#: Time for a terminated child to clean up before it is killed.
GRACE_SECONDS = 20.0
_GRACE_SECONDS_OF_SEVERAL = 2.0
_RESEND_SECONDS = 10.0
_TENSORFLOW = "tensorflow"
# Lines that native libraries write when they are imported, and Gloo when it connects.
_CHATTER = re.compile(r"I\d{4} \d\d:|[\d-]+ [\d:.]+: I |WARNING: All log messages before absl::InitializeLog|\[Gloo\]")
_LOG_LEVELS = {
    "pipeline": logging.INFO,
    "tasks": logging.INFO,
    # TFDS logs each file that it opens, and its own deprecations.
    "absl": logging.ERROR,
    # MirroredStrategy logs every reduction that it traces.
    "tensorflow": logging.WARNING,
    # Beam logs the start and end of each job server.
    "apache_beam.utils.subprocess_server": logging.ERROR,
}

_T = TypeVar("_T")

_logger = logging.getLogger(__name__)


def in_child(
    function: str,
    arguments: Mapping[str, Any],
    *,
    returns: type | None = None,
    backend: str = _TENSORFLOW,
    cpu_devices: int = 1,
    in_new_process: bool = False,
    is_in_process_group: bool = False,
) -> Any:
    """Call ``module:function`` in the child process of this process, which forwards its log records and progress.

    Args:
        function: the module and the function.
        arguments: its keyword arguments: plain data, paths, dataclasses and pydantic models. Pydantic makes them again
            by the annotations of the function.
        returns: the class of the result, if it is no plain data.
        backend: the backend that Keras uses in the child. One child with TensorFlow serves all stages.
        cpu_devices: logical CPU devices that the function needs. A child with another number is replaced.
        in_new_process: start a child that ends with the call, whatever ``TENSORCRAFT_IN_PROCESS`` says.
        is_in_process_group: other processes compute together with this one and may wait for it. The grace period is
            short, and output of native libraries becomes notes of an error.

    Raises:
        PipelineError: the function raised it, or any other error of ``pipeline.errors``.
        WorkerDiedError: a signal ended the child.
        OSError, RuntimeError: the function raised another error. Its traceback is a note of the exception.
    """
    # Keras keeps one backend for the life of a process.
    keras = sys.modules.get("keras")
    backend_here = keras.config.backend() if keras else os.environ.get("KERAS_BACKEND", _TENSORFLOW)
    if os.environ.get(IN_PROCESS) == "1" and backend == backend_here and not in_new_process:
        return pkgutil.resolve_name(function)(**arguments)
    kept = _kept_child(cpu_devices) if backend == _TENSORFLOW and not in_new_process else None
    child = kept or _Child(backend, cpu_devices, is_in_process_group=is_in_process_group)
    try:
        result = child.call(function, arguments)
    finally:
        if not kept:
            child.kill()
    return of_class(returns, result) if returns else result


def is_news(record: logging.LogRecord) -> bool:
    """Whether to log a record. Beam logs errors that a stage raises anyway.

    A record without an exception loses the empty traceback that Luigi requests.
    """
    if record.exc_info and record.exc_info[1] is None:
        record.exc_info = None
    of_an_error = record.name.startswith("apache_beam") and record.exc_info
    return not of_an_error and "apitools not found" not in str(record.msg)


def set_log_levels() -> None:
    """Let our modules log information, and libraries only warnings or errors."""
    for name, level in _LOG_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    # Only TensorFlow's own converter uses it.
    warnings.filterwarnings("ignore", message=r"\s*Warning: tf\.lite\.Interpreter is deprecated")


class _Child:
    """One child process, with a backend and logical CPU devices for its life."""

    def __init__(self, backend: str, cpu_devices: int, *, is_in_process_group: bool = False) -> None:
        self.cpu_devices = cpu_devices
        self._is_in_process_group, self._noise, self._is_killed = is_in_process_group, [], False
        environment = {
            # Settings decide what Keras reads from these.
            **{name: value for name, value in os.environ.items() if not name.startswith("KERAS_MAX_")},
            "KERAS_BACKEND": backend,
            # Modules of the user may be in a folder that only this process searches.
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        if not machine.has_gpu_driver():
            # TensorFlow reports the missing driver as an error. Level 3 shows only fatal errors.
            environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        # Ctrl-C in a terminal reaches this process alone, which then ends the child and the child's own children.
        how = {"env": environment, "process_group": 0, "encoding": "utf-8", "errors": "replace"}
        self.process = subprocess.Popen([sys.executable, "-P", "-m", "pipeline.stage_process"], **pipes, **how)
        self._listener = threading.Thread(target=self._read_noise, daemon=True)
        self._listener.start()

    def call(self, function: str, arguments: Mapping[str, Any]) -> Any:
        try:
            job = to_json({"function": function, "arguments": arguments})
            # A child that is gone does not read.
            with contextlib.suppress(BrokenPipeError):
                print(job, file=self.process.stdin, flush=True)
            kind, value = self._receive()
        except BaseException:
            self._terminate()
            raise
        if kind == "error":
            raise rebuild_error(value)
        return value

    def kill(self) -> None:
        """Kill the child and all that it started."""
        # Later another process may have its id.
        if not self._is_killed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._is_killed = True
            self.process.wait()
            self._listener.join(1.0)

    def _terminate(self) -> None:
        """Let the child clean up. Kill it after the grace period, or at the next signal."""
        end = time.monotonic() + (_GRACE_SECONDS_OF_SEVERAL if self._is_in_process_group else GRACE_SECONDS)
        try:
            while self.process.poll() is None and time.monotonic() < end:
                # Native code may swallow the exception that the first signal raises.
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(min(_RESEND_SECONDS, max(end - time.monotonic(), 0)))
            if self.process.poll() is None and not self._is_in_process_group:
                _logger.warning("the process of the stage does not react to SIGTERM and is killed. Its threads are at:")
                self.process.send_signal(signal.SIGUSR1)
                time.sleep(0.5)
        finally:
            self.kill()

    def _receive(self) -> tuple[str, Any]:
        """Forward log records and progress. Return the result or error."""
        for line in self.process.stdout:
            # A child that is killed may leave a part of a line.
            if not line.endswith("\n"):
                break
            kind, value = json.loads(line)
            if kind == "progress":
                progress.tell(*value)
            elif kind == "log":
                name, level, message = value
                logging.getLogger(name).log(level, "%s", message)
            else:
                return kind, value
        code = self.process.wait()
        self._listener.join(1.0)
        error = RuntimeError(f"the process of the stage ended with exit code {code}")
        if code < 0:
            error = WorkerDiedError(
                f"The process of the stage was ended by {signal.Signals(-code).name}. The system does this when memory "
                "is short. Finished stages and epochs are kept, run again to resume."
            )
        for line in self._noise:
            error.add_note(line)
        raise error

    def _read_noise(self) -> None:
        for line in self.process.stderr:
            if not line.strip() or _CHATTER.match(line):
                continue
            if self._is_in_process_group:
                self._noise.append(line.rstrip())
            else:
                _logger.info("%s", line.rstrip())


# By process: a process that Luigi forked does not share a child with its parent.
_kept: dict[int, _Child] = {}


def _kept_child(cpu_devices: int) -> _Child:
    child = _kept.get(os.getpid())
    if child and child.cpu_devices == cpu_devices and child.process.poll() is None:
        return child
    close_child()
    atexit.unregister(close_child)
    atexit.register(close_child)
    return _kept.setdefault(os.getpid(), _Child(_TENSORFLOW, cpu_devices))


def close_child() -> None:
    """End the child that serves all stages, if there is one."""
    if child := _kept.pop(os.getpid(), None):
        child.kill()


def to_json(value: Any) -> str:
    """A value as JSON on one line. Paths, dataclasses and pydantic models become texts and objects.

    Raises:
        TypeError: it contains something else than these and plain data.
    """
    return json.dumps(value, default=_as_plain_data)


def _as_plain_data(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no plain data: {value!r:.80}")


def of_class(kind: type[_T], value: Any) -> _T:
    """The object of a class that ``to_json`` wrote."""
    # Most starts need not spend the time of this import.
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


def describe_error(error: BaseException) -> dict[str, Any]:
    """An error as JSON data."""
    if known := error_for_user(error):
        kind = next(kind.__name__ for kind in type(known).__mro__ if hasattr(errors, kind.__name__))
        return {"kind": kind, "message": str(known), "mismatch": getattr(known, "mismatch", None)}
    chain = []
    for one in causes(error):
        system = [one.errno, one.strerror, one.filename] if isinstance(one, OSError) else [None] * 3
        chain.append([f"{type(one).__name__}: {one}", *system])
    return {"chain": chain, "traceback": "".join(traceback.format_exception(error)).rstrip()}


def rebuild_error(value: Mapping[str, Any]) -> Exception:
    """The error that ``describe_error`` was given, with its causes."""
    if "kind" in value:
        kind: type[PipelineError] = getattr(errors, value["kind"])
        return kind(value["message"], value["mismatch"]) if value["mismatch"] else kind(value["message"])
    error: Exception | None = None
    for message, errno, strerror, filename in reversed(value["chain"]):
        cause, error = error, OSError(errno, strerror, filename) if errno else RuntimeError(message)
        error.__cause__ = cause
    error.add_note(f"In the process of the stage:\n{value['traceback']}")
    return error


class _Answers(logging.Handler):
    """The child's lines to its parent."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(is_news)
        # A library that prints must not write between the lines.
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        os.dup2(2, 1)
        self.is_closed = False

    def say(self, kind: str, value: object) -> None:
        if not self.is_closed:
            line = to_json([kind, value])
            with self.lock:
                self._file.write(line + "\n")

    def emit(self, record: logging.LogRecord) -> None:
        self.say("log", [record.name, record.levelno, self.format(record)])


def _read_jobs(jobs: "queue.SimpleQueue[dict]") -> None:
    for line in os.fdopen(os.dup(0), encoding="utf-8"):
        jobs.put(json.loads(line))
    if os.getpgrp() == os.getpid():
        # The parent is gone. No process that this one started may stay either.
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _serve() -> None:
    from pydantic import validate_call

    answers, jobs = _Answers(), queue.SimpleQueue()

    def interrupt(*_: object) -> None:
        # The parent does not read any more.
        answers.is_closed = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    faulthandler.register(signal.SIGUSR1)
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger().addHandler(answers)
    logging.captureWarnings(True)
    set_log_levels()
    progress.listen(lambda *values: answers.say("progress", values))
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    # A library may wrap the interrupt in an error of its own.
    with contextlib.suppress(KeyboardInterrupt):
        while not answers.is_closed:
            job = jobs.get()
            try:
                function = validate_call(pkgutil.resolve_name(job["function"]))
                answers.say("result", function(**job["arguments"]))
            except (Exception, SystemExit) as error:
                answers.say("error", describe_error(error))
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    _serve()
