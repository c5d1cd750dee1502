"""Time limits: a stage past its limit is terminated, or killed if it does not react.

Either way the exit code is the limit's. ``tests/process/test_stage_process.py`` has the short cases.
"""

import psutil
import pytest
from fault_checks import TIME_LIMIT, assert_nothing_partial
from luigi_process import FAST, IN_CHILD, TINY


@pytest.mark.faults
def test_a_stage_past_its_time_limit_is_stopped_in_order(first_run, tmp_path, count):
    luigi = first_run.copy(tmp_path)
    done = luigi(*FAST[2:], *TINY, "--Train-epochs", "100000", "--Train-time-limit-seconds", "15", **IN_CHILD)
    assert done.returncode == TIME_LIMIT
    assert "[Train] time_limit_seconds" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(luigi.root.glob("*/.*.tmp"))
    assert_nothing_partial(luigi.root)
    count["time limits"] += 1


# A user's model that waits in C code, which no exception ends.
DEAF = """
import ctypes, signal

def build(*arguments):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    ctypes.CDLL(None).sleep(600)
"""


@pytest.mark.faults
@pytest.mark.parametrize("workers", [1, 2], ids=["one process", "a worker that Luigi forked"])
def test_a_stage_that_does_not_react_is_killed_with_the_limits_code(first_run, tmp_path, workers):
    luigi = first_run.copy(tmp_path)
    (tmp_path / "deaf_model.py").write_text(DEAF)
    more = ["--Train-model", "deaf_model:build", "--Train-time-limit-seconds", "15", "--workers", str(workers)]
    done = luigi("--Train-epochs", "1", *more, PYTHONPATH=str(tmp_path), **IN_CHILD)
    assert done.returncode == TIME_LIMIT, done.stderr
    assert "deaf_model.py" in done.stderr, "where it hangs"
    assert done.stderr.count("[Train] time_limit_seconds") == 1
    left = [process for process in psutil.process_iter(["cmdline", "environ"]) if is_child_of(process, tmp_path)]
    assert not left


def is_child_of(process, folder) -> bool:
    path = (process.info["environ"] or {}).get("PYTHONPATH", "")
    return str(folder) in path and "pipeline.stage_process" in (process.info["cmdline"] or [])
