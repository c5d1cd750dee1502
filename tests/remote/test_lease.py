"""Leases: one holder at a time, and none for ever."""

import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.errors import RemoteError
from pipeline.remote.lease import Lease

FOLDER = "runs/" + "a" * 64


def lease(remote, seconds=60.0, folder=FOLDER) -> Lease:
    return Lease(remote.objects, folder, seconds=seconds)


def test_of_many_that_ask_at_once_one_has_it(remote):
    barrier = threading.Barrier(8)

    def ask(_):
        barrier.wait()
        return lease(remote).take()

    with ThreadPoolExecutor(8) as pool:
        holders = list(pool.map(ask, range(8)))
    assert holders.count(None) == 1
    (named,) = {holder.name for holder in holders if holder}
    assert "process" in named
    assert all(0 < holder.seconds_left <= 60 for holder in holders if holder)


def test_it_is_free_again_once_it_was_given_back(remote):
    first = lease(remote)
    assert first.take() is None
    with first.renewed():
        assert lease(remote).take()
    assert lease(remote).take() is None
    assert len(list(remote.objects.list())) == 1, "nothing but the lease is left"


def test_one_that_is_renewed_does_not_expire(remote):
    # Long against a moment in which nothing here is computed, and the store's clock counts whole seconds.
    first = lease(remote, seconds=6)
    assert first.take() is None
    with first.renewed():
        ends = time.monotonic() + 9
        while time.monotonic() < ends:
            assert lease(remote).take()
            time.sleep(0.5)


def test_one_whose_holder_was_killed_is_taken_over_when_it_has_expired(remote, caplog):
    began = time.monotonic()
    assert lease(remote, seconds=2).take() is None
    waiting = lease(remote)
    with caplog.at_level(logging.INFO):
        while holder := waiting.take():
            assert holder.seconds_left <= 2
            time.sleep(0.2)
    # By the store's clock, which counts whole seconds.
    assert time.monotonic() - began > 0.9
    assert "taken over" in caplog.text
    assert lease(remote).take(), "the new one holds"


def test_of_two_that_take_over_one_has_it(remote):
    assert lease(remote, seconds=1).take() is None
    time.sleep(2.5)
    barrier = threading.Barrier(4)

    def ask(_):
        barrier.wait()
        return lease(remote).take()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))).count(None) == 1


def test_who_lost_it_learns_of_it_and_does_not_remove_the_new_ones(remote, caplog):
    first = lease(remote, seconds=1)
    assert first.take() is None
    # As a laptop that slept: nothing is renewed.
    time.sleep(2.5)
    second = lease(remote)
    assert second.take() is None
    with first.renewed():
        ends = time.monotonic() + 30
        while "lost" not in caplog.text and time.monotonic() < ends:
            time.sleep(0.1)
    assert "lost, another machine may be making the same" in caplog.text
    assert lease(remote).take(), "the second one's is there"


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_machine_whose_clock_is_wrong_sees_the_same_age(remote, store, url, hours):
    assert lease(remote).take() is None
    code = (
        "import sys, datetime, time_machine\n"
        "from pipeline.remote.lease import Lease\n"
        "from pipeline.remote.objects import Objects\n"
        "now = datetime.datetime.now(datetime.UTC)\n"
        "with time_machine.travel(now + datetime.timedelta(hours=int(sys.argv[3]))):\n"
        "    holder = Lease(Objects(sys.argv[1], endpoint=sys.argv[2]), sys.argv[4], seconds=60).take()\n"
        "print(holder.seconds_left)\n"
    )
    command = [sys.executable, "-c", code, url, store.endpoint, str(hours), FOLDER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert 30 < float(done.stdout) <= 60


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"seconds": "x"}',
        b'{"seconds": 1e99}',
        b'{"seconds": 1' + b"0" * 400 + b"}",
        b"{" * 2_000,
    ],
    ids=lambda content: repr(content[:20]),
)
def test_a_lease_that_is_none_of_ours_keeps_nobody_out_for_long(remote, content):
    remote.objects.create(f"{FOLDER}/lease.json", content)
    holder = lease(remote).take()
    assert holder is None or holder.seconds_left <= 3_600


def test_a_store_that_is_gone_while_it_is_held_ends_nothing(behind_proxy, remote):
    gone = threading.Event()
    seen, _ = behind_proxy(lambda *_: 404 if gone.is_set() else "pass")
    held = lease(seen, seconds=1)
    assert held.take() is None
    with held.renewed():
        gone.set()
        time.sleep(1)


def test_a_store_that_does_not_answer_is_an_error(store, url, behind_proxy):
    remote, proxy = behind_proxy(lambda *_: "pass")
    proxy.stop()
    with pytest.raises(RemoteError, match="See that"):
        lease(remote).take()
