"""Meeting: processes of one training find each other, agree, and hear of it when one is missing or gone."""

import json
import socket
import subprocess
import sys
import threading
import time

import psutil
import pytest

from pipeline.config.membership import Membership
from pipeline.errors import SettingsError, WorkerDiedError
from pipeline.training.meeting import Meeting, agree, join
from tasks.commands.train_local import free_ports

SECONDS = 20


@pytest.fixture
def address():
    return "127.0.0.1", free_ports()


def together(address, bodies, *, runs=None, seconds=SECONDS):
    """What each process gives or raises: a thread each, which joins and then does its body with the meeting."""
    found = [None] * len(bodies)

    def work(number):
        try:
            member = Membership(len(bodies), number, *address)
            meeting = join(member, run=runs[number] if runs else "a run", timeout_seconds=seconds)
            found[number] = bodies[number](meeting)
        except Exception as error:
            found[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number, body in enumerate(bodies) if body]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return found


def test_a_process_alone_meets_nobody_and_agrees_with_itself():
    meeting = join(Membership(), run="a run", timeout_seconds=SECONDS)
    assert (meeting.is_chief, meeting.exchange("memory", True)) == (True, [True])
    agree(meeting, "everything", object())
    meeting.leave()


def test_all_hear_what_each_gives_in_the_order_of_their_numbers(address):
    def body(meeting):
        number = meeting.membership.process_id
        found = [meeting.exchange("a", number), meeting.exchange("b", {"text": "ü" * number})]
        meeting.leave()
        return found, [one["process_id"] for one in meeting.present]

    texts = [{"text": "ü" * number} for number in range(4)]
    assert together(address, [body] * 4) == [([[0, 1, 2, 3], texts], [0, 1, 2, 3])] * 4


def test_who_is_missing_is_named_to_all_that_came(address):
    found = together(address, [Meeting.leave, None, Meeting.leave, None], seconds=1)
    for error in (found[0], found[2]):
        assert isinstance(error, WorkerDiedError)
        assert "4 are to train together, and after 1 s missing: 1, 3" in str(error)
        assert f"2 on {socket.gethostname()}" in str(error)
        assert "--Train-process-id 1" in str(error)


def test_where_process_0_is_missing_its_address_is_named(address):
    error = together(address, [None, Meeting.leave], seconds=1)[1]
    assert isinstance(error, WorkerDiedError)
    assert f"process 0 was not at 127.0.0.1:{address[1]} within 1 s" in str(error)


def test_a_process_of_another_run_stops_all(address):
    found = together(address, [Meeting.leave] * 2, runs=["one", "another"])
    assert all(isinstance(error, SettingsError) for error in found)
    assert all("process 1" in str(error) and "other settings, other code" in str(error) for error in found)


def test_a_number_that_is_taken_is_refused_and_the_others_go_on(address):
    def body(meeting):
        meeting.leave()
        return "done"

    found = []

    def come(number):
        try:
            found.append(body(join(Membership(3, number, *address), run="a run", timeout_seconds=SECONDS)))
        except SettingsError as error:
            found.append(str(error))

    threads = [threading.Thread(target=come, args=(number,)) for number in (0, 1, 1)]
    for thread in threads:
        thread.start()
    while not found:
        time.sleep(0.05)
    # One of the two with the same number; then comes the last that is missing.
    come(2)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert "1 is there already, or is none of the 3 processes" in found[0]
    assert found[1:] == ["done"] * 3


def test_what_is_no_process_of_ours_is_turned_away(address):
    def knock(content):
        for _ in range(100):
            try:
                with socket.create_connection(address) as stranger:
                    stranger.sendall(content)
                    stranger.settimeout(30)
                    return stranger.recv(1000)
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise AssertionError("nobody listened")

    answers = []

    def chief(meeting):
        meeting.leave()
        return "done"

    def late(meeting):
        meeting.leave()
        return "done"

    def knock_and_come():
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"[1]\n", b'{"process_id": 7}\n', b'{"process_id": 1}\n'):
            answers.append(knock(content))
        answers.append(late(join(Membership(2, 1, *address), run="a run", timeout_seconds=SECONDS)))

    other = threading.Thread(target=knock_and_come)
    other.start()
    assert together(address, [chief, None])[0] == "done"
    other.join(30)
    assert answers.pop() == "done"
    assert all(b"refused" in answer for answer in answers)


def test_processes_that_have_not_the_same_are_told_who_has_what(address):
    found = together(address, [lambda meeting: agree(meeting, "the precision", meeting.membership.process_id)] * 2)
    assert all(isinstance(error, SettingsError) for error in found)
    assert all("share the precision. process 0: 0; process 1: 1" in str(error) for error in found)


def test_a_process_at_another_point_is_told_of(address):
    found = together(
        address, [lambda meeting: meeting.exchange("memory", 1), lambda meeting: meeting.exchange("the end", 1)]
    )
    assert all("process 1 is at 'the end', this one at 'memory'" in str(error) for error in found)


def test_whoever_leaves_first_is_not_taken_for_gone(address):
    def body(meeting):
        lost = []
        meeting._on_gone = lost.append
        meeting.leave()
        return lost

    for attempt in range(30):
        assert together((address[0], free_ports()), [body] * 3) == [[], [], []], attempt


def test_a_process_that_died_before_all_were_there_may_come_again(address):
    def come(number):
        return join(Membership(3, number, *address), run="a run", timeout_seconds=SECONDS)

    found = []
    chief = threading.Thread(target=lambda: found.append(come(0).present))
    chief.start()
    process = subprocess.Popen([sys.executable, "-c", _JOINS, "1", str(address[1])], stdout=subprocess.PIPE, text=True)
    here = psutil.Process(process.pid)
    while not any(one.status == psutil.CONN_ESTABLISHED for one in here.net_connections()):
        assert process.poll() is None
        time.sleep(0.05)
    # What it says of itself is read meanwhile.
    time.sleep(0.2)
    process.kill()
    process.wait()
    others = [threading.Thread(target=come, args=(number,)) for number in (1, 2)]
    for thread in others:
        thread.start()
    for thread in (chief, *others):
        thread.join(30)
        assert not thread.is_alive()
    assert [one["process_id"] for one in found[0]] == [0, 1, 2]
    assert found[0][1]["pid"] != process.pid


_JOINS = """
import json, sys, time
from pipeline.config.membership import Membership
from pipeline.training.meeting import join
member = Membership(3, int(sys.argv[1]), "127.0.0.1", int(sys.argv[2]))
meeting = join(member, run="a run", timeout_seconds=20, on_gone=lambda message: print(json.dumps(message), flush=True))
print("joined", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("killed", [0, 1])
def test_a_process_that_is_killed_is_named_to_all_others_at_once(address, killed):
    commands = [[sys.executable, "-c", _JOINS, str(number), str(address[1])] for number in range(3)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    try:
        assert all(process.stdout.readline() == "joined\n" for process in processes)
        processes[killed].kill()
        for number, process in enumerate(processes):
            if number != killed:
                assert f"process {killed} of 3" in json.loads(process.stdout.readline())
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(("name", "warned"), [("host-a", True), ("localhost", False)])
def test_a_name_that_no_other_host_reaches_is_warned_of(address, name, warned, caplog, monkeypatch):
    # As Debian's /etc/hosts has the host's own name.
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", address[1]))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    with pytest.raises(WorkerDiedError):
        join(Membership(2, 0, name, address[1]), run="a run", timeout_seconds=0.1)
    assert ("host-a is 127.0.1.1 on this host" in caplog.text) is warned


def test_an_address_that_is_not_this_hosts_is_refused_with_the_setting():
    # Of the block that is for documentation.
    with pytest.raises(SettingsError, match=r"\[Train\] coordinator_address: process 0 cannot listen at 192"):
        join(Membership(2, 0, "192.0.2.1", 9000), run="a run", timeout_seconds=1)
