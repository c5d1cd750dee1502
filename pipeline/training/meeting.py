"""Meeting: the processes of one training find each other, agree, and hear of it when one is gone (training's aid).

Before JAX's own service, and beside it: where a process is missing or dies, that one ends the others with a stack
trace and does not say which it was. Process 0 listens at the coordinator's address, the others call it and stay
connected; what they say are lines of JSON. Values that processes must share are exchanged here: which run it is, which
checkpoint was found, whether the examples lie in memory.
"""

import contextlib
import ipaddress
import json
import logging
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.config.membership import Membership
from pipeline.errors import PipelineError, SettingsError, WorkerDiedError
from pipeline.training import words

# Of a connection that says nothing more, as when a host lost its power: until it counts as gone.
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_MAX_LINE_BYTES = 2**20
_HELLO_SECONDS = 5.0
_RETRY_SECONDS = 0.2
_THE_END = "the end"
# For the others to end by themselves, once all is done.
_LEAVE_SECONDS = 10.0

_logger = logging.getLogger(__name__)


class Meeting:
    """Of one process with the others; alone, by default."""

    def __init__(
        self,
        membership: Membership | None = None,
        lines: Mapping[int, "_Line"] | None = None,
        present: Sequence[Mapping[str, Any]] = (),
        on_gone: Callable[[str], None] = lambda message: None,
    ) -> None:
        """``lines``: process → connection, of process 0 to each, of the others to process 0.

        ``present``: what each said of itself when it joined; ``on_gone`` is called, in another thread, with what to say
        when a process is gone.
        """
        self.membership = membership or Membership()
        self.present = present
        self._on_gone = on_gone
        self._lines = dict(lines or {})
        self._heard: dict[int, queue.Queue] = {number: queue.Queue() for number in self._lines}
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._listen, args=(number, line), daemon=True)
            for number, line in self._lines.items()
        ]
        for thread in self._threads:
            thread.start()

    @property
    def is_chief(self) -> bool:
        """Whether this process writes what all of them have made."""
        return self.membership.is_chief

    def exchange(self, what: str, value: Any) -> list[Any]:
        """What each process gives, plain data, by their numbers; every process calls it at the same points.

        Raises:
            WorkerDiedError: a process is gone, or at another point.
        """
        if not self._lines:
            return [value]
        if not self.is_chief:
            self._lines[0].say({"what": what, "value": value})
            return self._hear(0, what)
        values = [value, *(self._hear(number, what) for number in sorted(self._lines))]
        for line in self._lines.values():
            line.say({"what": what, "value": values})
        return values

    def leave(self) -> None:
        """When all have come so far; process 0 goes last, as JAX's service ends with it."""
        self.exchange(_THE_END, None)
        self._is_over.set()
        for line in self._lines.values():
            line.hang_up()
        if self.is_chief:
            for thread in self._threads:
                thread.join(_LEAVE_SECONDS)

    def _hear(self, number: int, what: str) -> Any:
        heard = self._heard[number].get()
        if isinstance(heard, Exception):
            raise heard
        if heard.get("what") != what:
            message = words.elsewhere(number, what, heard.get("what"))
            self._lose(message)
            raise WorkerDiedError(message)
        return heard.get("value")

    def _listen(self, number: int, line: "_Line") -> None:
        has_ended = False
        while heard := line.hear():
            # From then on it may go, be it before this process knows that all have come so far.
            has_ended = heard.get("what") == _THE_END
            if "gone" in heard:
                self._lose(str(heard["gone"]))
                return
            self._heard[number].put(heard)
        if not has_ended:
            self._lose(words.process_gone(number, self.membership.processes, self.present[number]["hostname"]))

    def _lose(self, message: str) -> None:
        if self._is_over.is_set():
            return
        self._is_over.set()
        if self.is_chief:
            for line in self._lines.values():
                line.say({"gone": message})
        for heard in self._heard.values():
            heard.put(WorkerDiedError(message))
        self._on_gone(message)


def join(
    membership: Membership,
    *,
    run: str,
    timeout_seconds: float,
    on_gone: Callable[[str], None] = lambda message: None,
) -> Meeting:
    """Meet the other processes of a run, which is named by its fingerprint.

    Raises:
        SettingsError: the coordinator's address cannot be used, or a process is there for another run.
        WorkerDiedError: not all have come within the time limit; it names those that are missing.
    """
    if membership.processes == 1:
        return Meeting()
    me = {"process_id": membership.process_id, "processes": membership.processes, "run": run}
    me |= {"hostname": socket.gethostname(), "pid": os.getpid()}
    deadline = time.monotonic() + timeout_seconds
    meet = _gather if membership.is_chief else _call
    lines, present = meet(membership, me, deadline, timeout_seconds)
    return Meeting(membership, lines, present, on_gone)


def agree(meeting: Meeting, what: str, mine: object) -> None:
    """Go on only where every process has the same.

    Raises:
        SettingsError: they differ; says what, and who has which.
    """
    values = meeting.exchange(what, mine)
    if any(value != values[0] for value in values):
        raise SettingsError(words.differs(what, values))


class _Line:
    """Lines of JSON objects over a socket; the end of the other side, or nonsense, is None."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._connection = connection
        self._file = connection.makefile("rb")

    def say(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def hear(self, within_seconds: float | None = None) -> dict[str, Any] | None:
        try:
            self._connection.settimeout(within_seconds)
            heard = json.loads(self._file.readline(_MAX_LINE_BYTES))
        except (OSError, ValueError):
            return None
        return heard if isinstance(heard, dict) else None

    def is_open(self) -> bool:
        """Whether the other side, which has nothing to say now, is still there."""
        # A socket with a time limit would wait for it, whatever it is asked.
        if not select.select([self._connection], [], [], 0)[0]:
            return True
        try:
            return self._connection.recv(1, socket.MSG_PEEK) != b""
        except OSError:
            return False

    def hang_up(self) -> None:
        """Nothing more is said; what the other side still says can be heard."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._file.close()
        self._connection.close()


_Lines = dict[int, _Line]
_Present = list[Mapping[str, Any]]


def _gather(membership: Membership, me: dict, deadline: float, timeout_seconds: float) -> tuple[_Lines, _Present]:
    """Process 0: wait for all others."""
    lines: _Lines = {}
    present = {0: me}
    with _listening(membership, deadline) as server:
        while len(present) < membership.processes:
            server.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                line = _Line(server.accept()[0])
            except TimeoutError:
                _forget_those_that_left(lines, present)
                missing = sorted({*range(membership.processes)} - {*present})
                said = words.processes_missing(missing, membership.processes, timeout_seconds, [*present.values()])
                raise _told(lines, WorkerDiedError(said)) from None
            hello = line.hear(_HELLO_SECONDS) or {}
            number = hello.get("process_id")
            # It may be there again.
            _forget_those_that_left(lines, present)
            is_expected = isinstance(number, int) and 0 < number < membership.processes and number not in present
            if not is_expected or not isinstance(hello.get("hostname"), str):
                line.say({"refused": words.not_expected(number, membership.processes), "error": "SettingsError"})
                line.close()
                continue
            lines[number], present[number] = line, hello
            if (hello.get("run"), hello.get("processes")) != (me["run"], me["processes"]):
                raise _told(lines, SettingsError(words.another_run(number, hello["hostname"])))
    everyone = [present[number] for number in sorted(present)]
    for line in lines.values():
        line.say({"present": everyone})
    return lines, everyone


def _listening(membership: Membership, deadline: float) -> socket.socket:
    """A server at the coordinator's address; a name may take a while until it is this host's again."""
    while True:
        try:
            family, *_, where = socket.getaddrinfo(membership.host, membership.port, type=socket.SOCK_STREAM)[0]
            server = socket.create_server(where[:2], family=family)
            if ipaddress.ip_address(where[0]).is_loopback and membership.host not in ("localhost", where[0]):
                _logger.warning("%s", words.reaches_this_host_only(membership.host, where[0]))
            return server
        except OSError as error:
            if time.monotonic() > deadline:
                address = f"{membership.host}:{membership.port}"
                raise SettingsError(words.no_address(address, error.strerror)) from error
        time.sleep(_RETRY_SECONDS)


def _forget_those_that_left(lines: _Lines, present: dict[int, Mapping[str, Any]]) -> None:
    for number in [number for number, line in lines.items() if not line.is_open()]:
        lines.pop(number).close()
        del present[number]


def _told(lines: _Lines, error: PipelineError) -> PipelineError:
    """The error, of which those that are there hear too."""
    for line in lines.values():
        line.say({"refused": str(error), "error": type(error).__name__})
        line.close()
    return error


def _call(membership: Membership, me: dict, deadline: float, timeout_seconds: float) -> tuple[_Lines, _Present]:
    """Any other process: call process 0 until it answers, then wait for all."""
    address = f"{membership.host}:{membership.port}"
    while True:
        try:
            line = _Line(socket.create_connection((membership.host, membership.port), timeout=_HELLO_SECONDS))
            line.say(me)
            # It has a time limit of its own, from when it came.
            answer = line.hear(timeout_seconds + _HELLO_SECONDS)
            if answer:
                break
        except OSError:
            pass
        if time.monotonic() > deadline:
            raise WorkerDiedError(words.no_coordinator(address, timeout_seconds))
        time.sleep(_RETRY_SECONDS)
    if "refused" in answer:
        kind = SettingsError if answer.get("error") == "SettingsError" else WorkerDiedError
        raise kind(str(answer["refused"]))
    return {0: line}, answer["present"]
