"""``train-local`` and ``train-worker``: several processes train one model together (see docs/hardware.md).

Process 0 runs the pipeline and has the terminal. The number of another one marks each of its lines.
"""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from tasks.commands.command import Parser
from tasks.config_files import PROJECT_FOLDER
from tasks.process import command_line, interrupt
from tasks.train import Train

_POLL_SECONDS = 0.2
# What they may take to end by themselves, and after each signal.
_ALONE_SECONDS, _GRACE_SECONDS = 5.0, 20.0


def train_local(parser: Parser, argv: Sequence[str]) -> int:
    """Train with several processes of this machine, on JAX."""
    parser.add_argument("--processes", type=int, default=2, help="how many (2)")
    arguments, settings = parser.parse_known_args(argv)
    if arguments.processes < 2:
        parser.error("--processes: expected 2 or more")
    flags = [f"--Train-processes={arguments.processes}", f"--Train-coordinator-address=127.0.0.1:{free_port()}"]
    # Each would take all cards there are.
    flags += ["--Train-device=cpu", *settings]
    interrupt.listen()
    processes: list[subprocess.Popen] = []
    readers: list[threading.Thread] = []
    try:
        for number in range(arguments.processes):
            what = ["train-worker"] if number else ["Report"]
            line = [sys.executable, "-m", "tasks", *what, *flags, f"--Train-process-id={number}"]
            how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
            process = subprocess.Popen(line, cwd=PROJECT_FOLDER, **(how if number else {}))
            processes.append(process)
            if number:
                readers.append(threading.Thread(target=_mark, args=(number, process.stdout), daemon=True))
                readers[-1].start()
        code = _wait(processes)
    except KeyboardInterrupt:
        # Ctrl-C in a terminal is heard by all processes, another signal by this one.
        _end(processes)
        code = 128 + signal.SIGINT
    for reader in readers:
        # A process that outlives its parent may keep the pipe open.
        reader.join(_ALONE_SECONDS)
    return code


def train_worker(parser: Parser, argv: Sequence[str]) -> int:
    """Train with process 0, which runs on another host."""
    with command_line.in_force(["--module", "tasks", "Report", *parser.parse_known_args(argv)[1]]):
        Train().follow()
    return 0


def free_port() -> int:
    """A free port of the loopback."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _mark(number: int, lines: IO[str]) -> None:
    for line in lines:
        sys.stderr.write(f"[{number}] {line}")


def _wait(processes: list[subprocess.Popen]) -> int:
    while any(process.poll() is None for process in processes) and not any(process.returncode for process in processes):
        time.sleep(_POLL_SECONDS)
    code = next((process.returncode for process in processes if process.returncode), 0)
    _end(processes)
    # As a shell says it of a process that a signal ended.
    return 128 - code if code < 0 else code


def _end(processes: list[subprocess.Popen]) -> None:
    terminate, kill = subprocess.Popen.terminate, subprocess.Popen.kill
    for ask, seconds in ((None, _ALONE_SECONDS), (terminate, _GRACE_SECONDS), (kill, _GRACE_SECONDS)):
        left = [process for process in processes if process.poll() is None]
        for process in left if ask else ():
            ask(process)
        deadline = time.monotonic() + seconds
        while any(process.poll() is None for process in left) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
