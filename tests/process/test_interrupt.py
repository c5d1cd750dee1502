"""How a signal ends a process of ours, wherever it comes."""

import signal
import subprocess
import sys

import pytest
from luigi_process import PROJECT

from tasks.process import interrupt

# Where Python ignores what is raised.
IN_A_FINALISER = """
import os, signal, time
from tasks.process import interrupt

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.01)

# A shell starts what it runs in the background with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
interrupt.listen()
try:
    Last()
    time.sleep(20)
    print("went on")
except KeyboardInterrupt:
    print("heard")
"""

# As a thread of TensorFlow's that is still at work does now and then.
DIES_WHEN_TAKEN_APART = """
import atexit, os
from tasks.process import console

class Library:
    def __del__(self):
        os.abort()

library = Library()
console.configure()
atexit.register(print, "at the end")
raise KeyboardInterrupt
"""


# "step": between two calls of progress.tell; where is printed what the exception came out of.
IN_THE_MIDDLE = """
import os, signal, time
from pipeline import progress
from tasks.process import interrupt

interrupt.listen()
where = "outside"
try:
    with interrupt.time_limit("Train", 0):
        for step in range({steps}):
            where = "tell"
            progress.tell("epoch", step, 1000)
            where = "step"
            if step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            time.sleep({seconds})
        where = "end"
except KeyboardInterrupt:
    print(where, step)
"""


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_that_python_ignored_is_heard_all_the_same(name):
    done = python(IN_A_FINALISER.format(name=name))
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n", "")


def test_an_interrupted_process_ends_by_the_signal_whatever_its_libraries_do_when_they_are_taken_apart():
    done = python(DIES_WHEN_TAKEN_APART)
    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stdout == "at the end\n"
    assert "Interrupted. Finished stages are kept" in done.stderr


def test_the_first_process_of_a_container_ends_too():
    # The kernel gives it no signal that it has not asked for.
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", DIES_WHEN_TAKEN_APART]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("needs root")
    assert done.returncode == 128 + signal.SIGINT, done.stderr


def test_a_time_limit_ends_with_its_stage():
    with interrupt.time_limit("Train", 100):
        pass
    assert signal.alarm(0) == 0, "seconds left until the alarm"


@pytest.mark.parametrize(
    ("steps", "seconds", "seen"), [(50, 0.05, "tell 3"), (50, 20, "step 2"), (3, 0.05, "end 2")], ids=str
)
def test_a_signal_waits_for_the_end_of_a_step_but_not_for_long_and_is_not_forgotten(steps, seconds, seen):
    done = python(IN_THE_MIDDLE.format(steps=steps, seconds=seconds))
    assert (done.stdout.strip(), done.stderr) == (seen, "")
