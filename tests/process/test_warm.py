"""What tests/warm.py starts is a process as any other."""

import sys
from concurrent.futures import ThreadPoolExecutor

import warm


def test_processes_started_by_several_threads_at_once_each_have_their_own_exit_code_and_output():
    def start(number: int) -> tuple[int, str]:
        done = warm.run([sys.executable, "-m", f"no_module_{number}"], timeout=300)
        return done.returncode, done.stderr.split("No module named ")[-1].strip()

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(start, range(24)))
    assert ends == [(1, f"no_module_{number}") for number in range(24)]
