"""The lock of a storage root, asked for as another process would."""

import subprocess

from tasks.process import lock


def test_nobody_else_can_hold_the_lock_in_any_way(tmp_path):
    lock.hold(tmp_path, on_busy="leave")
    try:
        for way in ("--shared", "--exclusive"):
            other = subprocess.run(["flock", "--nonblock", way, tmp_path / lock.LOCK_NAME, "true"], check=False)
            assert other.returncode == 1, way
    finally:
        lock._held.pop(tmp_path).close()


def test_what_a_killed_repetition_left_is_removed_and_results_stay(tmp_path):
    (tmp_path / "determinism" / ".again-x1y2" / "run").mkdir(parents=True)
    result = tmp_path / "determinism" / "baseline_cnn-0123456789ab.json"
    result.touch()
    lock.clear_away(tmp_path)
    assert [*result.parent.iterdir()] == [result]
