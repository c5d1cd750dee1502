"""The lock of a storage root, asked for as another process would."""

import subprocess

from tasks.process import lock


def test_no_other_process_can_take_the_lock(tmp_path):
    lock.hold(tmp_path, on_busy="leave")
    try:
        for way in ("--shared", "--exclusive"):
            other = subprocess.run(["flock", "--nonblock", way, tmp_path / lock.LOCK_NAME, "true"], check=False)
            assert other.returncode == 1, way
    finally:
        lock._held.pop(tmp_path).close()


def test_leftovers_of_a_killed_repetition_are_removed_and_results_stay(tmp_path):
    (tmp_path / "determinism" / ".again-x1y2" / "run").mkdir(parents=True)
    result = tmp_path / "determinism" / "baseline_cnn-0123456789ab.json"
    result.touch()
    lock.clear_away(tmp_path)
    assert [*result.parent.iterdir()] == [result]
