"""What workers of a cluster log is told where the job was submitted."""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import RemoteError
from pipeline.shards import presence, worker_logs
from pipeline.shards.shared import SharedFolder

INFINITE = b'{"level": 1e999, "host": "a", "process": Infinity, "text": ""}'
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
    subprocess.run([sys.executable, "-c", CODE, shared.folder], check=True, timeout=300, cwd=Path(__file__).parents[2])
    told: set[str] = set()
    worker_logs.tell(shared, told)
    (worker,) = {record.getMessage().partition(": ")[0] for record in caplog.records}
    assert worker.startswith(f"worker on {os.uname().nodename}, process ")
    said = [(record.levelname, record.getMessage().removeprefix(f"{worker}: ")) for record in caplog.records]
    assert said[:3] == [("INFO", "takes part"), ("INFO", "42 files"), ("WARNING", "low on memory")]
    # The engine may try again: no error of the job.
    assert said[3:] == [("WARNING", "Error processing instruction 7 … ZeroDivisionError: division by zero")]
    caplog.clear()
    worker_logs.tell(shared, told)
    assert not caplog.records, "nothing is told twice"


def test_what_this_process_logs_is_not_told_twice(shared):
    presence.expect(shared)
    presence.sign_in(shared)
    logging.getLogger("pipeline").warning("here")
    assert [*shared.names(f"{worker_logs.LOGS}/")] == []


def left(shared: SharedFolder) -> list[str]:
    return [*shared.names(f"{worker_logs.LOGS}/")]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def sending(shared) -> logging.Handler:
    """A worker's handler, as after its first block."""
    shared.write("marker", b"")
    before = {*logging.getLogger().handlers}
    worker_logs.send(shared, "marker")
    (handler,) = {*logging.getLogger().handlers} - before
    return handler


def test_a_worker_that_outlives_its_job_leaves_nothing_and_works_on(shared, sending):
    logging.getLogger("pipeline").warning("one")
    until(lambda: len(left(shared)) == 1)
    Path(shared.folder, "marker").unlink()
    logging.getLogger("pipeline").warning("another")
    until(lambda: sending not in logging.getLogger().handlers)
    assert len(left(shared)) == 1


def test_what_a_library_logs_wrongly_ends_no_work(shared, sending, capsys):
    # As the handlers of the standard library take it; pytest's own raises.
    logging.getLogger().handlers[:] = [sending]
    logging.getLogger("some.library").warning("%d items", "many")
    logging.getLogger("some.library").warning("fine")
    sending.close()
    assert len(left(shared)) == 1
    assert "TypeError" in capsys.readouterr().err


def test_a_message_that_cannot_be_left_is_lost_and_the_next_is_not(shared, sending, monkeypatch):
    write, failing = SharedFolder.write, [RemoteError("503")]

    def hiccup(self, name, content):
        if failing:
            raise failing.pop()
        write(self, name, content)

    monkeypatch.setattr(SharedFolder, "write", hiccup)
    for text in ("one", "two"):
        logging.getLogger("pipeline").warning(text)
    sending.close()
    (name,) = left(shared)
    assert json.loads(shared.read(name))["text"] == "two"


def test_warnings_without_end_are_cut_and_an_error_after_them_is_not(shared, sending, caplog):
    for number in range(500):
        logging.getLogger("some.library").warning("%d", number)
    logging.getLogger("some.library").error("the end")
    sending.close()
    caplog.clear()
    worker_logs.tell(shared, set())
    said = [message.partition(": ")[2] for message in caplog.messages]
    assert said == [*map(str, range(150)), "more messages, which are in the engine's own log", "the end"]


def test_what_was_not_read_for_a_store_that_does_not_answer_is_told_later(shared, sending, caplog, monkeypatch):
    logging.getLogger("pipeline").warning("one")
    sending.close()
    caplog.clear()
    told: set[str] = set()

    def gone(*_, **__):
        raise RemoteError("503")

    with monkeypatch.context() as patch:
        patch.setattr(SharedFolder, "read", gone)
        with pytest.raises(RemoteError):
            worker_logs.tell(shared, told)
    worker_logs.tell(shared, told)
    assert [message.rpartition(": ")[2] for message in caplog.messages] == ["one"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"level": "x"}', INFINITE, b"\xff", b"[" * 10_000, b"1" * 30_000])
def test_what_no_worker_left_is_said_so(shared, caplog, content):
    shared.write(f"{worker_logs.LOGS}/1.json", content)
    worker_logs.tell(shared, set())
    assert caplog.messages == ["logs/1.json: expected what a worker logged, found something else"]


def test_a_terminal_obeys_no_worker(shared, caplog):
    content = {"level": 20, "host": "a\x1b[2Jb", "process": 1, "text": "one\n12:00 ERROR two\x1b]0;owned\x07"}
    shared.write(f"{worker_logs.LOGS}/1.json", json.dumps(content).encode())
    worker_logs.tell(shared, set())
    assert caplog.messages == ["worker on a\\x1b[2Jb, process 1: one\\n12:00 ERROR two\\x1b]0;owned\\x07"]
