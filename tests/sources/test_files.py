"""Many files are looked at by processes: what they find, and that they end with what started them."""

import subprocess
import sys
import time

import psutil
import pytest
from image_files import write_folder, written_png

from pipeline.config.data import SourceSettings
from pipeline.sources import files

_LOOKS_AND_DIES = """
import os, sys
from pipeline import progress
from pipeline.config.data import SourceSettings
from pipeline.sources import files

files.MANY_FILES = 0
def die(*progress, **unit):
    print(*[child.pid for child in __import__("psutil").Process().children(recursive=True)], flush=True)
    os.kill(os.getpid(), 9)
progress.tell = die
if __name__ == "__main__":
    files.list_files(SourceSettings(dataset="folder", path=sys.argv[1]))
"""


@pytest.fixture
def of_two_cores(monkeypatch):
    monkeypatch.setattr("pipeline.machine.granted_cores", lambda: 2)


@pytest.mark.usefixtures("of_two_cores")
def test_processes_find_what_threads_find(tmp_path, monkeypatch):
    bad = {"notes.txt": b"", "b.jpg": b"no image", "bomb.png": written_png(60_000, 60_000, 8)}
    settings = SourceSettings(
        dataset="folder", path=str(write_folder(tmp_path / "images", a=60, b=60, bad=bad)),
        on_bad_example="skip", max_bad_share=1,
    )  # fmt: skip
    by_threads = files.list_files(settings)
    monkeypatch.setattr(files, "MANY_FILES", 0)
    started, real = [], files.ProcessPoolExecutor

    def counted(*arguments, **options):
        started.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(files, "ProcessPoolExecutor", counted)
    assert files.list_files(settings) == by_threads
    assert started


def test_the_processes_end_with_a_parent_that_is_killed(tmp_path):
    program = tmp_path / "looks_and_dies.py"
    program.write_text(_LOOKS_AND_DIES)
    folder = write_folder(tmp_path / "images", a=150, b=150)
    found = subprocess.run([sys.executable, str(program), str(folder)], capture_output=True, text=True, timeout=300)
    children = [int(pid) for pid in found.stdout.split()]
    assert found.returncode == -9
    assert children
    deadline = time.monotonic() + 30
    while running := [pid for pid in children if psutil.pid_exists(pid)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.1)
