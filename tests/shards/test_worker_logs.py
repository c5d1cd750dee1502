"""What workers of a cluster log is told where the job was submitted."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.shards import presence, worker_logs
from pipeline.shards.shared import SharedFolder

CODE = """
import logging, sys
from pipeline.shards import presence
from pipeline.shards.shared import SharedFolder

shared = SharedFolder(sys.argv[1])
presence.sign_in(shared)
logging.getLogger("pipeline.sources").info("42 files")
logging.getLogger("some.library").info("of no interest")
logging.getLogger("some.library").warning("low on %s", "memory")
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("apache_beam").exception("Error processing instruction 7")
"""


@pytest.fixture
def shared(tmp_path) -> SharedFolder:
    return SharedFolder(str(tmp_path))


@pytest.fixture(autouse=True)
def heard(caplog):
    """Every level, and the handlers of this process as they were."""
    before, level = [*logging.getLogger().handlers], logging.getLogger("pipeline").level
    caplog.set_level(logging.DEBUG, "pipeline.shards.worker_logs")
    yield
    logging.getLogger().handlers[:] = before
    logging.getLogger("pipeline").setLevel(level)


def test_what_another_process_logs_is_told_with_where_it_was(shared, caplog):
    presence.expect(shared)
    subprocess.run([sys.executable, "-c", CODE, shared.folder], check=True, timeout=120, cwd=Path(__file__).parents[2])
    told: set[str] = set()
    worker_logs.tell(shared, told)
    (worker,) = {record.getMessage().partition(": ")[0] for record in caplog.records}
    assert worker.startswith(f"worker on {os.uname().nodename}, process ")
    said = [(record.levelname, record.getMessage().removeprefix(f"{worker}: ")) for record in caplog.records]
    assert said[:3] == [("INFO", "begins with its first block"), ("INFO", "42 files"), ("WARNING", "low on memory")]
    ((level, error),) = said[3:]
    assert level == "ERROR"
    assert error.startswith("Error processing instruction 7\nTraceback")
    assert error.endswith("ZeroDivisionError: division by zero")
    caplog.clear()
    worker_logs.tell(shared, told)
    assert not caplog.records, "nothing is told twice"


def test_what_this_process_logs_is_not_told_twice(shared):
    presence.expect(shared)
    presence.sign_in(shared)
    logging.getLogger("pipeline").warning("here")
    assert [*shared.names(f"{worker_logs.LOGS}/")] == []


def test_a_worker_that_outlives_its_job_leaves_nothing_and_works_on(shared):
    shared.write("marker", b"")
    worker_logs.send(shared, "marker")
    logging.getLogger("pipeline").warning("one")
    Path(shared.folder, "marker").unlink()
    logging.getLogger("pipeline").warning("another")
    shared.write("marker", b"")
    logging.getLogger("pipeline").warning("a third")
    assert len([*shared.names(f"{worker_logs.LOGS}/")]) == 1


def test_a_worker_of_a_second_job_tells_the_second(tmp_path):
    first, second = (SharedFolder(str(tmp_path / name)) for name in ("first", "second"))
    for shared in (first, second):
        Path(shared.folder).mkdir()
        shared.write("marker", b"")
        worker_logs.send(shared, "marker")
        logging.getLogger("pipeline").warning("once")
    assert [len([*shared.names(f"{worker_logs.LOGS}/")]) for shared in (first, second)] == [1, 1]


def test_warnings_without_end_are_cut_and_that_is_said(shared, caplog):
    shared.write("marker", b"")
    worker_logs.send(shared, "marker")
    for number in range(500):
        logging.getLogger("some.library").warning("%d", number)
    caplog.clear()
    worker_logs.tell(shared, set())
    assert len(caplog.messages) == 201
    assert caplog.messages[-1].endswith("more than 200 messages; the others are in the engine's own log")


@pytest.mark.parametrize("content", [b"", b"[]", b'{"level": "x"}', b"\xff", b"[" * 100_000])
def test_what_no_worker_left_is_said_so(shared, caplog, content):
    shared.write(f"{worker_logs.LOGS}/1.json", content)
    worker_logs.tell(shared, set())
    assert caplog.messages == ["logs/1.json: expected what a worker logged, found something else"]


def test_a_terminal_obeys_no_worker(shared, caplog):
    content = {"level": 20, "host": "a\x1b[2Jb", "process": 1, "text": "one\ntwo\x1b]0;owned\x07"}
    shared.write(f"{worker_logs.LOGS}/1.json", json.dumps(content).encode())
    worker_logs.tell(shared, set())
    assert caplog.messages == ["worker on a\\x1b[2Jb, process 1: one\ntwo\\x1b]0;owned\\x07"]
