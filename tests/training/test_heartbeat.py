"""Presence files: processes of one training find each other, and name the one that is missing or gone."""

import json
import os
import sys
import threading
import time

import pytest

from pipeline.errors import PipelineError, SettingsError, WorkerDiedError
from pipeline.training import heartbeat as module
from pipeline.training import launch
from pipeline.training.heartbeat import FOLDER_NAME, Heartbeat
from pipeline.training.process_group import ProcessGroup


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_BEAT_SECONDS", 0.05)
    # On a busy machine, a process may be silent for seconds.
    monkeypatch.setattr(module, "_SILENT_SECONDS", 300.0)
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.5)


@pytest.fixture
def group(tmp_path):
    """A function that announces a process of two in this one, with what it was told of others that are gone."""
    made = []

    def announce(rank, settings="same", processes=2):
        told = []
        made.append(Heartbeat(tmp_path, ProcessGroup(processes, rank), settings=settings, on_failure=told.append))
        made[-1].told = told
        return made[-1]

    yield announce
    for one in made:
        one.leave(is_done=True)


def wait_until(is_so, seconds=300):
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def failure_of(heartbeat):
    wait_until(lambda: heartbeat.failure)
    return heartbeat.failure


def test_a_process_follows_the_requests_of_process_0_until_it_is_done(group):
    chief, other = group(0), group(1)
    chief.wait_for_all(300)
    with chief.requesting({"epochs": 1}):
        first, content = other.next_request("", 300)
    assert content == {"epochs": 1}
    with chief.requesting({"epochs": 2}):
        assert other.next_request(first, 300)[1] == {"epochs": 2}
    chief.leave(is_done=True)
    assert other.next_request("", 300) is None
    assert not other.told


def test_a_process_that_ignores_the_stop_is_notified_again(group, monkeypatch):
    chief, other = group(0), group(1)
    chief.wait_for_all(300)
    monkeypatch.setattr(module, "_SILENT_SECONDS", 0.2)
    other.leave(is_done=False)
    wait_until(lambda: len(chief.told) == 2)
    assert chief.told[0] is chief.told[1]


def test_a_missing_process_is_named_to_all_present_ones(group):
    chief, other = group(0, processes=3), group(1, processes=3)
    wait_until(lambda: chief._present and other._changes)
    with pytest.raises(WorkerDiedError, match=r"within 0 s, missing 2\. .*--Train-process-id 2"):
        chief.wait_for_all(0.3)
    chief.leave(is_done=False)
    with pytest.raises(WorkerDiedError, match="missing 2"):
        other.next_request("", 300)


def test_a_missing_process_0_is_reported_by_the_others(group):
    with pytest.raises(WorkerDiedError, match=r"process 0 has not written .* within 0 s"):
        group(1).next_request("", 0.2)


def test_other_settings_are_refused_by_both(group):
    chief, other = group(0), group(1, settings="others")
    wait_until(lambda: other._changes)
    with pytest.raises(SettingsError, match=r"process 1 on .* has other settings"):
        chief.wait_for_all(300)
    chief.leave(is_done=False)
    with pytest.raises(SettingsError, match=r"process 1 on .* has other settings"):
        other.next_request("", 300)


def test_two_processes_with_one_number_are_refused(group, monkeypatch):
    first = group(1)
    # In one process, both write the same temporary file.
    with first._lock:
        second = group(1)
    # One finds the other if that writes between its own writing and reading.
    monkeypatch.setattr(module, "_BEAT_SECONDS", 0.001)
    wait_until(lambda: first.failure or second.failure)
    assert "[Train] process_id: 1 is in use" in str(first.failure or second.failure)


@pytest.mark.parametrize("gone", [0, 1])
def test_a_process_that_leaves_early_is_named(group, gone):
    present = [group(0), group(1)]
    present[0].wait_for_all(300)
    wait_until(lambda: present[1]._present)
    present[gone].leave(is_done=False)
    assert f"process {gone} of 2 on " in str(failure_of(present[1 - gone]))
    wait_until(lambda: present[1 - gone].told)


def test_all_processes_name_the_first_that_left(group):
    present = [group(rank, processes=3) for rank in range(3)]
    present[0].wait_for_all(300)
    wait_until(lambda: len(present[1]._present) == 2)
    present[2].leave(is_done=False)
    failure_of(present[0])
    present[0].leave(is_done=False)
    assert "process 2 of 3" in str(failure_of(present[1]))


def test_a_process_with_an_expired_lease_counts_as_lost(group, monkeypatch):
    chief, other = group(0), group(1)
    chief.wait_for_all(300)
    # As if it was killed: nothing is removed, and nothing more is written.
    other._is_over.set()
    monkeypatch.setattr(module, "_SILENT_SECONDS", 1.0)
    assert "process 1 of 2" in str(failure_of(chief))


def test_a_lost_connection_is_explained_by_the_lost_process(group, monkeypatch):
    chief, other = group(0), group(1)
    chief.wait_for_all(300)
    threading.Timer(0.3, other.leave, kwargs={"is_done": False}).start()
    assert "process 1 of 2 on " in str(chief.explain_lost_connection())


def abort(message):
    """What a native library does with an error of its own."""
    print(message, file=sys.stderr, flush=True)
    os.abort()


@pytest.mark.parametrize(("message", "is_explained"), [("Check failed: size == 3", False), ("missed heartbeats", True)])
def test_a_child_that_aborts_by_itself_is_no_lost_connection(group, monkeypatch, caplog, message, is_explained):
    caplog.set_level("INFO")
    monkeypatch.setattr(launch, "_TRAIN", f"{__name__}:abort")
    monkeypatch.setattr(module, "_SILENT_SECONDS", 0.1)
    with pytest.raises(WorkerDiedError) as died:
        launch._train_together({"message": message}, group(0))
    assert ("one of the 2 processes stopped" in str(died.value)) is is_explained
    assert ("ended by SIGABRT" in str(died.value)) is not is_explained
    assert (message in caplog.text) is not is_explained


def test_files_of_an_earlier_run_are_nobodys(group, tmp_path):
    for rank in range(2):
        earlier = group(rank)
        earlier._is_over.set()
        (tmp_path / FOLDER_NAME / f"{rank}.json").write_text(json.dumps(earlier._state))
    chief = group(0)
    with pytest.raises(WorkerDiedError, match="missing 1"):
        chief.wait_for_all(1)


def test_a_process_that_process_0_does_not_need_ends(group, tmp_path):
    other = group(1)
    group(0).leave(is_done=True)
    os.utime(tmp_path / FOLDER_NAME / "0.json", (time.time() + 5, time.time() + 5))
    assert other.next_request("", 300) is None


def test_a_process_0_with_other_settings_that_has_nothing_to_do_ends_no_other_process(group):
    other = group(1)
    group(0, settings="others").leave(is_done=True)
    with pytest.raises(PipelineError):
        other.next_request("", 0.2)


def test_one_failed_read_is_no_end(group, monkeypatch):
    chief, _ = group(0), group(1)
    chief.wait_for_all(300)
    monkeypatch.setattr(module, "_BEAT_SECONDS", 100.0)
    real = chief._read
    monkeypatch.setattr(chief, "_read", lambda rank: None if rank == 1 else real(rank))
    assert chief._find_failure() is None


@pytest.mark.parametrize("odd", ["[]", "{}", '{"end": null, "seen": {}}'])
def test_an_odd_file_is_the_file_of_nobody(group, tmp_path, odd):
    chief = group(0)
    (tmp_path / FOLDER_NAME / "1.json").write_text(odd)
    assert chief._find_failure() is None
    group(1)
    chief.wait_for_all(300)


@pytest.mark.parametrize("name", ["Path", "error_for_user", "PipelineError"])
def test_an_odd_reason_is_the_end_of_a_process(group, name):
    chief, other = group(0), group(1)
    chief.wait_for_all(300)
    other._is_over.set()
    other._write([name, "reason"])
    assert type(failure_of(chief)) is WorkerDiedError


def test_a_process_0_that_had_nothing_to_do_twice_is_no_surprise(group):
    other = group(1)
    for _ in range(2):
        group(0).leave(is_done=True)
        assert other._find_failure() is None
