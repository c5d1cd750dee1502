"""A folder whose files are called as our packages are does not take their place."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHADOWS = ("tasks.py", "pipeline.py")
LUIGI = Path(sys.executable).with_name("luigi")


@pytest.mark.parametrize(
    "command", [[sys.executable, "-P", "-m", "tasks"], [str(LUIGI), "--module", "tasks"]], ids=["python -P", "luigi"]
)
def test_files_in_the_working_directory_are_not_run_in_our_place(tmp_path, command):
    for name in SHADOWS:
        (tmp_path / name).write_text("raise SystemExit('not ours')\n")
    done = subprocess.run(
        [*command, "Report", "--help-all"], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert "--Report-seeds" in done.stdout
