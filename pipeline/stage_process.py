"""Runs functions of the stages in a child process, so that the calling process imports no numerical library.

The parent writes jobs as JSON lines to the child's standard input. The child exits when this input closes. It responds
with JSON lines for log records, progress, and finally a result or an error.
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
from pipeline.errors import WorkerDiedError, causes, error_for_user
from pipeline.optional_packages import hidden

#: If this variable is 1, functions run in this process, for debuggers.
IN_PROCESS = "TENSORCRAFT_IN_PROCESS"
#: Time in seconds for a terminated child to clean up before it is killed.
GRACE_SECONDS = 20.0
_GROUP_GRACE_SECONDS = 2.0
_RESEND_SECONDS = 10.0
_TENSORFLOW = "tensorflow"
# Keras imports these if they are installed, for functions that no stage calls. So does TensorFlow with JAX.
_UNUSED = ("IPython", "matplotlib", "pandas")
# Log lines of native libraries during import, of Gloo during connection, and of LiteRT's converter and interpreter.
_LOG_LINE = re.compile(
    r"I\d{4} \d\d:|[\d-]+ [\d:.]+: I |WARNING: All log messages before absl::InitializeLog|\[Gloo\]|"
    r"fully_quantize: |INFO: \w+ TensorFlow Lite "
)
_LOG_LEVELS = {
    "pipeline": logging.INFO,
    "tasks": logging.INFO,
    # TFDS logs each file that it opens, and its deprecations.
    "absl": logging.ERROR,
    # MirroredStrategy logs every reduction that it traces, and the count of operations its deprecations.
    "tensorflow": logging.ERROR,
    # Beam logs the start and end of each job server.
    "apache_beam.utils.subprocess_server": logging.ERROR,
}

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


def in_child(
    function: str,
    arguments: Mapping[str, Any] | None,
    *,
    returns: type | None = None,
    backend: str = _TENSORFLOW,
    cpu_devices: int = 1,
    in_new_process: bool = False,
    is_in_process_group: bool = False,
) -> Any:
    """Call a function in a child process. The child's log records and progress appear in this process.

    Args:
        function: The function, as ``module:function``.
        arguments: Keyword arguments of plain data, paths, dataclasses and pydantic models. Pydantic converts them by
            the annotations of the function. None only imports the function, and does not wait for that.
        returns: Class of the result, if it is not plain data.
        backend: Keras's backend in the child. A single child with TensorFlow serves all stages.
        cpu_devices: Logical CPU devices that the function needs. A child with another number is replaced.
        in_new_process: Whether to start a child for this call only. It overrides ``TENSORCRAFT_IN_PROCESS``.
        is_in_process_group: Whether other processes compute together with this one and may wait for it. The grace
            period is then short, and output of native libraries becomes notes of an error.

    Errors of ``pipeline.errors`` are raised as the function raised them. WorkerDiedError: A signal ended the child.
    OSError, RuntimeError: The function raised another error. Its traceback is a note of the exception.
    """
    # Settings replace these variables, also if Keras is imported in this process.
    for name in ("KERAS_MAX_EPOCHS", "KERAS_MAX_STEPS_PER_EPOCH"):
        os.environ.pop(name, None)
    # Keras's backend is fixed for the life of a process.
    keras = sys.modules.get("keras")
    current_backend = keras.config.backend() if keras else os.environ.get("KERAS_BACKEND", _TENSORFLOW)
    if os.environ.get(IN_PROCESS) == "1" and backend == current_backend and not in_new_process:
        return None if arguments is None else pkgutil.resolve_name(function)(**arguments)
    is_shared = backend == _TENSORFLOW and not in_new_process
    child = _shared_child(cpu_devices) if is_shared else _Child(backend, cpu_devices, is_in_process_group)
    try:
        result = child.call(function, arguments)
    finally:
        if not is_shared:
            child.kill()
    return of_class(returns, result) if returns else result


def should_log(record: logging.LogRecord) -> bool:
    """Whether to log a record. Beam's errors are dropped, because the stage raises them anyway.

    The function removes the empty traceback that Luigi requests for records without an exception.
    """
    if record.exc_info and record.exc_info[1] is None:
        record.exc_info = None
    is_beam_error = record.name.startswith("apache_beam") and record.exc_info
    return not is_beam_error and "apitools not found" not in str(record.msg)


def set_log_levels() -> None:
    """Log information of the project, and only warnings or errors of libraries."""
    for name, level in _LOG_LEVELS.items():
        logging.getLogger(name).setLevel(level)
    # Only the converters of TensorFlow and Keras use these.
    for begin in (r"\s*Warning: tf\.lite\.Interpreter is deprecated", r"In the future `np\.object`"):
        warnings.filterwarnings("ignore", message=begin)


class _Child:
    """Child process with a fixed backend and number of logical CPU devices."""

    def __init__(self, backend: str, cpu_devices: int, is_in_process_group: bool = False) -> None:
        self.cpu_devices = cpu_devices
        self._is_in_process_group, self._stderr_lines, self._is_killed = is_in_process_group, [], False
        environment = {
            **os.environ,
            **machine.onednn_variables(os.environ),
            "KERAS_BACKEND": backend,
            # User code may be in a folder that only this process searches.
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        if not machine.has_gpu_driver():
            # TensorFlow reports the missing driver as an error. Level 3 shows only fatal errors.
            environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        options = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        # In a separate process group, Ctrl-C does not reach the child. This process ends the child and its children.
        options |= {"env": environment, "process_group": 0, "encoding": "utf-8", "errors": "replace"}
        self.process = subprocess.Popen([sys.executable, "-P", "-m", "pipeline.stage_process"], **options)
        self._stderr_thread = threading.Thread(target=self._read_stderr, daemon=True)
        self._stderr_thread.start()

    def call(self, function: str, arguments: Mapping[str, Any] | None) -> Any:
        try:
            job = to_json({"function": function, "arguments": arguments})
            # The child may have ended.
            with contextlib.suppress(BrokenPipeError):
                print(job, file=self.process.stdin, flush=True)
            kind, value = ("result", None) if arguments is None else self._receive()
        except BaseException:
            self._terminate()
            raise
        if kind == "error":
            raise rebuild_error(value)
        return value

    def kill(self) -> None:
        """Kill the child and all its children."""
        # After this, another process may get the id.
        if not self._is_killed:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self._is_killed = True
            self.process.wait()
            self._stderr_thread.join(1.0)

    def _terminate(self) -> None:
        """Terminate the child. Kill it after the grace period, or at the next signal."""
        end = time.monotonic() + (_GROUP_GRACE_SECONDS if self._is_in_process_group else GRACE_SECONDS)
        try:
            while self.process.poll() is None and time.monotonic() < end:
                # Native code may swallow the exception that the first signal raises.
                self.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(min(_RESEND_SECONDS, max(end - time.monotonic(), 0)))
            if self.process.poll() is None and not self._is_in_process_group:
                _logger.warning("Killing the process of the stage, because it ignores SIGTERM. Its threads are at:")
                self.process.send_signal(signal.SIGUSR1)
                time.sleep(0.5)
        finally:
            self.kill()

    def _receive(self) -> tuple[str, Any]:
        """Forward log records and progress. Return the result or error."""
        for line in self.process.stdout:
            # A killed child may leave an incomplete line.
            if not line.endswith("\n"):
                break
            kind, value = json.loads(line)
            if kind == "progress":
                progress.report(*value)
            elif kind == "log":
                name, level, message = value
                logging.getLogger(name).log(level, "%s", message)
            else:
                return kind, value
        code = self.process.wait()
        self._stderr_thread.join(1.0)
        error = RuntimeError(f"The process of the stage ended with exit code {code}.")
        if code < 0:
            error = WorkerDiedError(
                f"The process of the stage was ended by {signal.Signals(-code).name}. Linux does this if memory is "
                "exhausted. Run the command again. Finished stages and epochs are kept."
            )
        for line in self._stderr_lines:
            error.add_note(line)
        raise error

    def _read_stderr(self) -> None:
        for line in self.process.stderr:
            if not line.strip() or _LOG_LINE.match(line):
                continue
            if self._is_in_process_group:
                self._stderr_lines.append(line.rstrip())
            else:
                _logger.info("%s", line.rstrip())


# Process id → child, because a process that Luigi forked must not share a child with its parent.
_children: dict[int, _Child] = {}


def _shared_child(cpu_devices: int) -> _Child:
    child = _children.get(os.getpid())
    if not child or child.cpu_devices != cpu_devices or child.process.poll() is not None:
        close_child()
        atexit.unregister(close_child)
        atexit.register(close_child)
        child = _children[os.getpid()] = _Child(_TENSORFLOW, cpu_devices)
    return child


def close_child() -> None:
    """End the shared child if it is running."""
    if child := _children.pop(os.getpid(), None):
        child.kill()


def to_json(value: Any) -> str:
    """Serialize a value to JSON on one line. Paths become strings, dataclasses and pydantic models become objects."""
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
    raise TypeError(f"Cannot serialize {type(value).__name__} to JSON: {value!r:.80}")


def of_class(kind: type[_T], value: Any) -> _T:
    """Convert JSON data of ``to_json`` to an object of a class."""
    # This import takes time that most commands can save.
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_python(value)


def describe_error(error: BaseException) -> dict[str, Any]:
    """Convert an error to JSON data."""
    if user_error := error_for_user(error):
        kind = next(kind.__name__ for kind in type(user_error).__mro__ if hasattr(errors, kind.__name__))
        return {"kind": kind, "message": str(user_error), "mismatch": getattr(user_error, "mismatch", None)}
    chain = [
        [
            f"{type(cause).__name__}: {cause}",
            *(getattr(cause, name, None) for name in ("errno", "strerror", "filename")),
        ]
        for cause in causes(error)
    ]
    return {"chain": chain, "traceback": "".join(traceback.format_exception(error)).rstrip()}


def rebuild_error(value: Mapping[str, Any]) -> Exception:
    """Rebuild the error and its causes from the data of ``describe_error``."""
    if "kind" in value:
        return getattr(errors, value["kind"])(*filter(None, (value["message"], value["mismatch"])))
    error: Exception | None = None
    for message, errno, strerror, filename in reversed(value["chain"]):
        cause, error = error, OSError(errno, strerror, filename) if errno else RuntimeError(message)
        error.__cause__ = cause
    error.add_note(f"In the process of the stage:\n{value['traceback']}")
    return error


class _Responses(logging.Handler):
    """Log handler that writes the child's JSON lines to its parent."""

    def __init__(self) -> None:
        super().__init__()
        self.addFilter(should_log)
        # Output of libraries must not mix with the JSON lines.
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        os.dup2(2, 1)
        self.is_closed = False

    def send(self, kind: str, value: object) -> None:
        if not self.is_closed:
            line = to_json([kind, value])
            with self.lock:
                self._file.write(line + "\n")

    def emit(self, record: logging.LogRecord) -> None:
        self.send("log", [record.name, record.levelno, self.format(record)])


def _read_jobs(jobs: "queue.SimpleQueue[dict]") -> None:
    for line in os.fdopen(os.dup(0), encoding="utf-8"):
        jobs.put(json.loads(line))
    if os.getpgrp() == os.getpid():
        # The parent has ended, so all processes of this group must end too.
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _serve() -> None:
    from pydantic import validate_call

    responses, jobs = _Responses(), queue.SimpleQueue()

    def interrupt(*_: object) -> None:
        # The parent no longer reads.
        responses.is_closed = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    faulthandler.register(signal.SIGUSR1)
    sys.stdout.reconfigure(line_buffering=True)
    logging.getLogger().addHandler(responses)
    logging.captureWarnings(True)
    set_log_levels()
    progress.listen(lambda *values: responses.send("progress", values))
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    # A library may wrap the interrupt in another exception.
    with contextlib.suppress(KeyboardInterrupt):
        while not responses.is_closed:
            job = jobs.get()
            try:
                with hidden(*_UNUSED, *(["jax"] if os.environ["KERAS_BACKEND"] == _TENSORFLOW else [])):
                    function = validate_call(pkgutil.resolve_name(job["function"]))
                if job["arguments"] is not None:
                    responses.send("result", function(**job["arguments"]))
            except (Exception, SystemExit) as error:
                # The call raises the error of an import again.
                if job["arguments"] is not None:
                    responses.send("error", describe_error(error))
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    _serve()
