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


def test_a_removed_working_directory_is_one_sentence(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f'rmdir "{gone}" && exec "{sys.executable}" -m tasks status'
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(command, shell=True, cwd=gone, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == ("ERROR SettingsError: the working directory was removed. Change to an existing folder.\n")
