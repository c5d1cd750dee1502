"""Leases: one holder at a time, and none for ever."""

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
import time_machine

from pipeline.errors import RemoteError
from pipeline.remote import lease as leases
from pipeline.remote.lease import Lease

FOLDER = "runs/" + "a" * 64


def lease(remote) -> Lease:
    return Lease(remote.objects, FOLDER, seconds=60)


@pytest.fixture
def later() -> Iterator[time_machine.Traveller]:
    """The clock of this process, which is the store's. It stands still, and ``shift`` moves it on by seconds."""
    with time_machine.travel(datetime.now(UTC), tick=False) as traveller:
        yield traveller


@pytest.fixture
def renewing_at_once(monkeypatch) -> None:
    """A lease of a minute is renewed every twentieth of a second."""
    monkeypatch.setattr(leases, "_RENEWALS", 60 * 20)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


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


def test_one_that_is_renewed_does_not_expire(remote, later, renewing_at_once):
    first = lease(remote)
    assert first.take() is None
    with first.renewed():
        # Two and a half minutes of a lease of one.
        for _ in range(3):
            later.shift(50)
            until(lambda: lease(remote).take().seconds_left > 55)


def test_one_whose_holder_was_killed_is_taken_over_when_it_has_expired(remote, later, caplog):
    assert lease(remote).take() is None
    # The store's clock counts whole seconds.
    later.shift(58)
    waiting = lease(remote)
    assert 0 < waiting.take().seconds_left <= 3
    later.shift(3)
    with caplog.at_level(logging.INFO):
        assert waiting.take() is None
    assert "taken over" in caplog.text
    assert lease(remote).take(), "the new one holds"


def test_of_two_that_take_over_one_has_it(remote, later):
    assert lease(remote).take() is None
    later.shift(62)
    barrier = threading.Barrier(4)

    def ask(_):
        barrier.wait()
        return lease(remote).take()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))).count(None) == 1


def test_who_lost_it_learns_of_it_and_does_not_remove_the_new_ones(remote, later, renewing_at_once, caplog):
    first = lease(remote)
    assert first.take() is None
    # As a laptop that slept: nothing is renewed.
    later.shift(62)
    second = lease(remote)
    assert second.take() is None
    with first.renewed():
        until(lambda: "lost, another machine may be making the same" in caplog.text)
    assert lease(remote).take(), "the second one's is there"


def test_a_machine_whose_clock_is_wrong_sees_the_same_age(remote, store, url):
    assert lease(remote).take() is None
    code = (
        "import sys, datetime, time_machine\n"
        "from pipeline.remote.lease import Lease\n"
        "from pipeline.remote.objects import Objects\n"
        "now = datetime.datetime.now(datetime.UTC)\n"
        "for hours in (-5, 5):\n"
        "    with time_machine.travel(now + datetime.timedelta(hours=hours)):\n"
        "        holder = Lease(Objects(sys.argv[1], endpoint=sys.argv[2]), sys.argv[3], seconds=60).take()\n"
        "    print(holder.seconds_left)\n"
    )
    command = [sys.executable, "-c", code, url, store.endpoint, FOLDER]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert [30 < float(line) <= 60 for line in done.stdout.splitlines()] == [True, True]


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


def test_a_store_that_is_gone_while_it_is_held_ends_nothing(behind_proxy, renewing_at_once):
    gone = threading.Event()
    seen, proxy = behind_proxy(lambda *_: 403 if gone.is_set() else "pass")
    held = lease(seen)
    assert held.take() is None
    with held.renewed():
        gone.set()
        before = len(proxy.requests)
        until(lambda: len(proxy.requests) >= before + 3)


def test_a_store_that_does_not_answer_is_an_error(store, url, behind_proxy):
    remote, proxy = behind_proxy(lambda *_: "pass")
    proxy.stop()
    with pytest.raises(RemoteError, match="See that"):
        lease(remote).take()
