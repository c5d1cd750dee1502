"""Python processes that begin with the libraries already imported.

Importing TensorFlow, Beam and TFDS takes ten seconds of CPU, and most tests of the whole pipeline start it several
times. So one process imports what can be shared, digests our code, and forks for each start; what is forked takes its
arguments, environment and folder and runs a module as ``python -m`` does. To the test it is a process as any other: its
own child, with pipes, an exit code and signals of its own. What importing itself does, and an edit of the code, is
tested by processes that start from nothing.
"""

import ctypes
import gc
import importlib
import json
import logging
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from pipeline.artifacts.fingerprint import code_digests

# Not Luigi and TFDS, which read the environment when they are imported; what Luigi imports.
LIBRARIES = (
    "tensorflow",
    "keras",
    "apache_beam",
    "scipy.special",
    "pydantic",
    "requests",
    "jsonschema",
    "tenacity",
    "rich.live",
)
# Whose code is read and digested once; a test that edits code starts from nothing.
STAGES = ("pipeline.sources", "pipeline.shards.job", "pipeline.training.train", "pipeline.report")
_LONGEST_REQUEST = 2**20
_PR_SET_CHILD_SUBREAPER = 36

_templates: dict[int, socket.socket] = {}
# Threads would take each other's answer, or give a process away to init: its exit code would then be read as 0.
_starting = threading.Lock()


class WarmPopen(subprocess.Popen):
    """A Popen of ``[sys.executable, "-m", module, …]`` that does not import the libraries again."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *more) -> None:
        # Private to subprocess, and the same in Python 3.11 to 3.13: what Popen does to start the process.
        _, _, _, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *_ = more
        python, option, *arguments = map(str, args)
        assert (python, option) == (sys.executable, "-m")
        request = json.dumps({"arguments": arguments, "cwd": str(cwd or Path.cwd()), "env": env or dict(os.environ)})
        files = [given if given >= 0 else own for given, own in ((p2cread, 0), (c2pwrite, 1), (errwrite, 2))]
        with _starting:
            template = _template()
            # Only meanwhile: a process whose parent ends becomes a child of this one.
            _adopt(True)
            try:
                socket.send_fds(template, [request.encode()], files)
                self.pid = int(template.recv(100))
            finally:
                _adopt(False)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)


def run(command: list, *, timeout: float, **how) -> subprocess.CompletedProcess:
    """As ``subprocess.run(command, capture_output=True, text=True)``."""
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    with WarmPopen(command, text=True, **pipes, **how) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def _template() -> socket.socket:
    if os.getpid() not in _templates:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        subprocess.Popen([sys.executable, __file__, str(its.fileno())], pass_fds=[its.fileno()], env=quiet)
        its.close()
        _templates[os.getpid()] = ours
    return _templates[os.getpid()]


def _adopt(yes: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(yes)):
        raise OSError(ctypes.get_errno(), "prctl")


def _serve(connection: socket.socket) -> dict:
    """Fork for each request; returns it, in the forked process only."""
    while True:
        message, files, *_ = socket.recv_fds(connection, _LONGEST_REQUEST, 3)
        if not message:
            sys.exit()
        readable, writable = os.pipe()
        between = os.fork()
        if between == 0 and (pid := os.fork()):
            os.write(writable, str(pid).encode())
            # Now the process it forked has the test's for a parent.
            os._exit(0)
        os.close(writable)
        if between == 0:
            for number, file in enumerate(files):
                os.dup2(file, number)
            for file in (*files, readable, connection.fileno()):
                os.close(file)
            return json.loads(message)
        os.waitpid(between, 0)
        connection.send(os.read(readable, 100))
        for file in (*files, readable):
            os.close(file)


def _become(request: dict) -> str:
    """Take the request's environment, folder and arguments; the name of the module to run."""
    module, *arguments = request["arguments"]
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[0] = request["cwd"]
    # As Python has it while it looks for the module.
    sys.argv[:] = ["-m", *arguments]
    return module


if __name__ == "__main__":
    for library in (*LIBRARIES, "pipeline.runs.record"):
        importlib.import_module(library)
    for stage in STAGES:
        code_digests(stage)
    # Or each process would look through all of it, and copy it, whenever it collects garbage.
    gc.freeze()
    # Beam warns of what is missing, and so makes one.
    logging.getLogger().handlers.clear()
    runpy.run_module(_become(_serve(socket.socket(fileno=int(sys.argv[1])))), run_name="__main__", alter_sys=True)
