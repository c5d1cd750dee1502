"""Time limits: a stage past its own is stopped in order, or by force where it does not react.

Either way the exit code is the limit's.
"""

import json
import os
import subprocess
import sys

import pytest
from fault_checks import TIME_LIMIT, assert_nothing_partial
from luigi_process import FAST, PROJECT


@pytest.mark.faults
def test_a_stage_past_its_time_limit_is_stopped_in_order(first_run, tmp_path, count):
    luigi = first_run.copy(tmp_path)
    done = luigi(*FAST[2:], "--Train-epochs", "100000", "--Train-time-limit-seconds", "10")
    assert done.returncode == TIME_LIMIT
    assert "[Train] time_limit_seconds" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(luigi.root.glob("*/.*.tmp"))
    assert_nothing_partial(luigi.root)
    count["time limits"] += 1


DEAF = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); ctypes.CDLL(None).sleep(600)"
IGNORING = """
while True:
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
"""


@pytest.mark.parametrize("hang", [DEAF, IGNORING], ids=["in C", "ignoring the exception"])
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_stage_that_hangs_past_its_limit_is_ended_by_force_with_the_limits_code(hang, log_format):
    code = (
        "import ctypes, signal, threading\n"
        "from tasks.process import console, interrupt\n"
        "interrupt.GRACE_SECONDS = 1\n"
        f"console.configure(); console.log_as({log_format!r})\n"
        f"with interrupt.time_limit('Train', 1):\n    exec({hang!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == TIME_LIMIT, done.stderr
    assert 'File \\"<string>\\"' in done.stderr or 'File "<string>"' in done.stderr, "where it hangs"
    last = done.stderr.splitlines()[-1]
    if log_format == "json":
        *_, last = map(json.loads, done.stderr.splitlines())
        assert (last["error"], last["exit_code"]) == ("TimeLimitError", TIME_LIMIT)
        assert "[Train] time_limit_seconds" in last["message"]
    else:
        assert "ERROR TimeLimitError: Train: not done after 1 s." in last


def test_a_limit_that_falls_into_a_string_of_code_ends_with_the_limits_code(tmp_path):
    """Such strings run while libraries are imported; Python remembers the KeyboardInterrupt that leaves one."""
    (tmp_path / "slow_import.py").write_text(
        "from pipeline.errors import TimeLimitError\n"
        "from tasks.process import interrupt\n"
        "interrupt.listen()\n"
        "try:\n"
        "    with interrupt.time_limit('Train', 1):\n        exec('while True: pass')\n"
        "except TimeLimitError as error:\n"
        "    raise SystemExit(error.exit_code)\n"
    )
    how = {"cwd": PROJECT, "env": {**os.environ, "PYTHONPATH": f"{PROJECT}:{tmp_path}"}, "check": False}
    assert subprocess.run([sys.executable, "-m", "slow_import"], **how).returncode == TIME_LIMIT


@pytest.mark.faults
def test_a_worker_that_hangs_past_its_limit_ends_the_run_with_the_limits_code(first_run, tmp_path):
    """Luigi forks the worker, and learns no more than that it died."""
    code = (
        "import sys, threading, luigi.retcodes, tasks\n"
        "from tasks.process import interrupt\n"
        "interrupt.GRACE_SECONDS = 1\n"
        f"def hang(self, folder):\n    exec({IGNORING!r}, globals())\n"
        "tasks.Report.make = hang\n"
        "luigi.retcodes.run_with_retcodes(sys.argv[1:])\n"
    )
    report = ["--module", "tasks", "Report", *FAST, "--workers", "2", "--Force-stage", "Report"]
    done = first_run.copy(tmp_path).python("-c", code, *report, "--Report-time-limit-seconds", "1")
    assert done.returncode == TIME_LIMIT, done.stderr
