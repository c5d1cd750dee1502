"""Commands of ours in the process of the tests, as ``python -m`` runs them.

A process per command costs a second of CPU. Here a command finds what a process of its own would find: an environment,
a folder, settings that Luigi reads anew, no log handlers and empty caches. What it changed is put back when it ends.
Signals, broken pipes, bytes written by native libraries and imports need processes: see ``warm.py``.
"""

import contextlib
import ctypes
import importlib
import io
import logging
import os
import runpy
import signal
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

PROJECT = Path(__file__).resolve().parent.parent
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)
_LOGGERS = ("", "absl", "luigi-interface", "pipeline", "py.warnings", "tasks", "tensorflow")


def run(module: str, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess:
    """Run ``python -m module`` with these arguments here; returns it as a finished process with its output as text."""
    stdout, stderr = io.StringIO(), io.StringIO()
    with mock.patch.multiple(sys, stdout=stdout, stderr=stderr), started(module, *arguments, cwd=cwd, env=env):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as ended:
            code = ended.code or 0
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            code = 1
    return subprocess.CompletedProcess([module, *arguments], code, stdout.getvalue(), stderr.getvalue())


@contextlib.contextmanager
def started(*argv: str, cwd: Path = PROJECT, env: Mapping[str, str]) -> Iterator[None]:
    """The block as if it were a process that has just imported our tasks, and read the settings of its environment."""
    import tasks

    with contextlib.ExitStack() as stack:
        patch = stack.enter_context
        stack.callback(_find_datasets)
        patch(mock.patch.dict(os.environ, env, clear=True))
        _find_datasets()
        patch(contextlib.chdir(cwd))
        patch(mock.patch.multiple(sys, argv=list(argv), path=[str(cwd), *sys.path]))
        patch(mock.patch.multiple(sys, excepthook=sys.excepthook, unraisablehook=sys.unraisablehook))
        patch(warnings.catch_warnings())
        # It says that the module was imported before.
        warnings.simplefilter("ignore", RuntimeWarning)
        patch(_without_log_handlers())
        patch(_signals_put_back())
        patch(_modules_forgotten())
        patch(_without_state_of_tasks())
        # It chooses the files of settings that Luigi reads, when it is imported.
        importlib.reload(tasks)
        yield


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """The block as an ordinary user, for whom permissions hold, but still the owner of what the tests made."""
    libc = ctypes.CDLL(None, use_errno=True)
    # Version 3 of the interface, this thread; then effective, permitted and inheritable capabilities, twice.
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()

    def call(function) -> None:
        if function(header, sets):
            raise OSError(ctypes.get_errno(), "capabilities")

    call(libc.capget)
    before = sets[0]
    # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
    sets[0] &= ~0b110
    call(libc.capset)
    try:
        # By itself it asks about the real user, who may get the capabilities back.
        with mock.patch.object(os, "access", partial(os.access, effective_ids=True)):
            yield
    finally:
        sets[0] = before
        call(libc.capset)


def _find_datasets() -> None:
    """Let TFDS look where the environment says, which it reads when it is imported."""
    if constants := sys.modules.get("tensorflow_datasets.core.constants"):
        constants.DATA_DIR = constants.get_default_data_dir()


@contextlib.contextmanager
def _without_log_handlers() -> Iterator[None]:
    loggers = [logging.getLogger(name or None) for name in _LOGGERS]
    before = [(logger.handlers, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers = []
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers = handlers
            logger.setLevel(level)


@contextlib.contextmanager
def _signals_put_back() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _modules_forgotten() -> Iterator[None]:
    """Let the next command import a user's modules anew: they may lie elsewhere then."""
    before = set(sys.modules)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None) or sys.prefix
            if not Path(origin).is_relative_to(PROJECT) and not Path(origin).is_relative_to(sys.prefix):
                del sys.modules[name]


@contextlib.contextmanager
def _without_state_of_tasks() -> Iterator[None]:
    """Luigi and our modules as if they had just been imported."""
    import luigi
    import luigi.configuration
    from luigi.task_register import Register

    import tasks  # noqa: F401
    from pipeline import progress
    from pipeline.artifacts import code_digest, manifest
    from tasks import config_files
    from tasks.process import interrupt, lock

    Settings = luigi.configuration.LuigiConfigParser
    collections = [getattr(interrupt, name) for name in ("_received", "_reasons")]
    collections += [config_files._refused, config_files.places, progress._listeners]
    ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "tasks"]

    def forget() -> None:
        Register.clear_instance_cache()
        for cached in (value for module in ours for value in vars(module).values() if hasattr(value, "cache_clear")):
            cached.cache_clear()
        manifest._warn_of_stray.cache_clear()
        code_digest.read_module.cache_clear()
        for collection in collections:
            collection.clear()
        while lock._held:
            lock._held.popitem()[1].close()

    # A run takes what it made itself for final.
    run_id = uuid.uuid4().hex
    events = {
        kind: {event: set(each) for event, each in of.items()} for kind, of in luigi.Task._event_callbacks.items()
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.multiple(Settings, _config_paths=[], _instance=None))
        stack.enter_context(mock.patch.object(luigi.Task, "_event_callbacks", events))
        for module in (module for module in ours if hasattr(module, "RUN_ID")):
            stack.enter_context(mock.patch.object(module, "RUN_ID", run_id))
        forget()
        try:
            yield
        finally:
            forget()
