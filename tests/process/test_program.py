"""What every command of ours has in common, whatever it does."""

import os
import subprocess
import sys

from luigi_process import PROJECT


def test_a_reader_that_leaves_early_is_no_error():
    readable, writable = os.pipe()
    os.close(readable)
    command = [sys.executable, "-m", "tasks", "experiments"]
    done = subprocess.run(command, stdout=writable, stderr=subprocess.PIPE, text=True, cwd=PROJECT, check=False)
    os.close(writable)
    # As a shell has it of a program that SIGPIPE ended.
    assert (done.returncode, done.stderr) == (128 + 13, "")
