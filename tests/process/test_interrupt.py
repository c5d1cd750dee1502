"""How a signal ends a process of ours."""

import signal
import subprocess
import sys

from luigi_process import PROJECT

from tasks.process import interrupt

INTERRUPTED = """
import atexit
from tasks.process import console

console.configure()
atexit.register(print, "at the end")
raise KeyboardInterrupt
"""
# Beam wraps even a KeyboardInterrupt.
WRAPPED = """
import os, signal
from tasks.process import interrupt

interrupt.listen()
try:
    with interrupt.time_limit("Train", 0):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt as error:
            raise RuntimeError("wrapped") from error
except KeyboardInterrupt:
    print("interrupted")
"""


def python(code, *before):
    command = [*before, sys.executable, "-c", code]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)


def test_an_interrupted_process_ends_by_the_signal():
    done = python(INTERRUPTED)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "at the end\n"), done.stderr
    assert "Interrupted. Finished stages are kept" in done.stderr


def test_a_signal_that_a_library_wrapped_is_still_an_interrupt():
    done = python(WRAPPED)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_a_time_limit_goes_on_after_one_within_it():
    with interrupt.time_limit("Train", 1000):
        with interrupt.time_limit("Train", 10):
            pass
        assert 900 < signal.alarm(0) <= 1000
    assert signal.alarm(0) == 0
