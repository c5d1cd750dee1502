"""Processes examine many images. They find the same as threads, and end with the process that started them."""

import subprocess
import sys
import time

import psutil
import pytest
from image_files import write_folder, written_png  # of tests

from pipeline.sources import files, image_files
from pipeline.sources.files import Example, read_below

_LOOKS_AND_DIES = """
import os, sys
from pipeline import progress
from pathlib import Path
from pipeline.sources import image_files
from pipeline.sources.files import Example
from pipeline.sources.files import read_below

image_files.MANY_FILES = 0
def die(*progress, **unit):
    print(*[child.pid for child in __import__("psutil").Process().children(recursive=True)], flush=True)
    os.kill(os.getpid(), 9)
progress.report = die
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    examples = [Example(str(path.relative_to(folder))) for path in folder.rglob("*.png")]
    image_files.examine(read_below, folder, examples)
"""


@pytest.fixture
def of_two_cores(monkeypatch):
    monkeypatch.setattr("pipeline.machine.granted_cores", lambda: 2)


@pytest.mark.usefixtures("of_two_cores")
def test_processes_find_what_threads_find(tmp_path, monkeypatch):
    bad = {"b.jpg": b"no image", "bomb.png": written_png(60_000, 60_000, 8)}
    folder = write_folder(tmp_path / "images", a=60, b=60, bad=bad)
    paths = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
    examples = [Example(path, stamp=(number, 0, 0, 0)) for number, path in enumerate(paths)]
    by_threads = image_files.examine(read_below, folder, examples)
    assert [len(part) for part in by_threads] == [120, 2]
    monkeypatch.setattr(image_files, "MANY_FILES", 0)
    started, real = [], image_files.ProcessPoolExecutor

    def counted(*arguments, **options):
        started.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(image_files, "ProcessPoolExecutor", counted)
    assert image_files.examine(read_below, folder, examples) == by_threads
    assert started


def test_the_processes_end_with_a_parent_that_is_killed(tmp_path):
    program = tmp_path / "looks_and_dies.py"
    program.write_text(_LOOKS_AND_DIES)
    folder = write_folder(tmp_path / "images", a=150, b=150)
    found = subprocess.run([sys.executable, str(program), str(folder)], capture_output=True, text=True, timeout=300)
    children = [int(pid) for pid in found.stdout.split()]
    assert found.returncode == -9
    assert children
    deadline = time.monotonic() + 300
    while running := [pid for pid in children if psutil.pid_exists(pid)]:
        assert time.monotonic() < deadline, running
        time.sleep(0.1)


def test_an_error_without_a_number_is_reported_by_its_text(tmp_path, monkeypatch):
    def gone(path: str) -> bytes:
        raise OSError("gone")

    monkeypatch.setattr(files, "read_file", gone)
    _, (skipped,) = image_files.examine(read_below, tmp_path, [Example("a.png")])
    assert (skipped.reason, skipped.detail) == ("cannot be read", "gone")
