"""Heartbeat files of the processes that train together, under their common storage root.

Each process rewrites its file every second. A process has stopped if its file is missing or does not change. The other
processes can therefore name it, whatever error the lost connection raises. Process 0 writes its requests to its file.
"""

import atexit
import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError, SettingsError, WorkerDiedError
from pipeline.training.process_group import ProcessGroup

FOLDER_NAME = "processes"
_BEAT_SECONDS = 1.0
# A process has stopped if its file is unchanged for this time.
_SILENT_SECONDS = 20.0
# Time for a running process to report a more precise error than the stop of a peer.
_PATIENCE_SECONDS = 10.0
# Content of a file. ``end`` is "done", or class and text of an error.
_EMPTY = {"host": "", "token": "", "settings": "", "request": None, "end": None}

_heartbeats: list["Heartbeat"] = []


class Heartbeat:
    """Heartbeat of this process, and monitor of its peers."""

    def __init__(self, root: Path, group: ProcessGroup, *, settings: str, on_failure: Callable[[PipelineError], None]):
        """Announce this process under the storage root.

        ``settings`` is a digest that must be equal in all processes. Another thread calls ``on_failure`` if a peer
        stopped and this process does not end by itself.
        """
        self.root, self._group, self._on_failure = root, group, on_failure
        self._state = _EMPTY | {"host": socket.gethostname(), "token": uuid.uuid4().hex, "settings": settings}
        # Rank → content of the file, and time of its last change. ``_present`` has the files that changed meanwhile.
        self._changes: dict[int, tuple[dict, float]] = {}
        self._present: dict[int, dict] = {}
        self._lock = threading.Lock()
        self._is_over, self._has_failed = threading.Event(), threading.Event()
        self.failure: PipelineError | None = None
        (root / FOLDER_NAME).mkdir(parents=True, exist_ok=True)
        self._beat()
        # The clocks of hosts differ, but the file system has a single clock.
        self._started = (self._read(group.rank) or {"at": time.time()})["at"]
        threading.Thread(target=self._run, daemon=True).start()
        _heartbeats.append(self)
        atexit.register(self.leave, is_done=False)

    def wait_for_all(self, timeout_seconds: float) -> None:
        """Wait until all processes are present. The error names those that are missing or have other settings."""
        deadline, processes = time.monotonic() + timeout_seconds, self._group.processes
        while len(self._present) < processes - 1:
            if self._has_failed.wait(0.1):
                raise self.failure
            if time.monotonic() > deadline:
                missing = sorted({*range(processes)} - {self._group.rank, *self._present})
                self.failure = WorkerDiedError(
                    f"[Train] processes: expected {processes} within {timeout_seconds:.0f} s, missing "
                    f"{', '.join(map(str, missing))}. Start the same command on the missing host with "
                    f"--Train-process-id {missing[0]}, or increase --Train-join-timeout-seconds."
                )
                raise self.failure

    def next_request(self, last_id: str, timeout_seconds: float) -> tuple[str, Any] | None:
        """Wait for the next request after ``last_id``. Return its id and content, or None if process 0 has finished."""
        started = time.monotonic()
        while not self._has_failed.wait(_BEAT_SECONDS / 2):
            chief, waited = self._read(0) or _EMPTY, time.monotonic() - started
            if 0 not in self._present:
                if self._ended_early(chief, waited, timeout_seconds):
                    return None
                if waited > timeout_seconds:
                    raise WorkerDiedError(
                        f"[Train] processes: process 0 has not written {self._path(0)} within {timeout_seconds:.0f} s. "
                        "Start the same command with --Train-process-id 0 on the same storage root."
                    )
            elif chief["end"] == "done":
                return None
            elif chief["request"] and chief["request"][0] != last_id:
                return tuple(chief["request"])
        raise self.failure

    def _ended_early(self, chief: dict, waited: float, timeout_seconds: float) -> bool:
        """Whether process 0 finished before rendezvous. Its file may come from an earlier start."""
        if chief["end"] != "done" or chief["settings"] != self._state["settings"]:
            return False
        age = self._started - chief["at"]
        return age < 0 or (age < timeout_seconds and waited > _PATIENCE_SECONDS)

    @contextlib.contextmanager
    def requesting(self, request: Any) -> Iterator[None]:
        """Context in which the other processes train with this one, as ``request`` specifies."""
        self._state["request"] = [uuid.uuid4().hex, request]
        self._beat()
        try:
            yield
        finally:
            self._state["request"] = None

    def explain_lost_connection(self) -> PipelineError:
        """Error that names the stopped process, if it can be found."""
        self._has_failed.wait(_SILENT_SECONDS + 2 * _BEAT_SECONDS)
        return self.failure or WorkerDiedError(
            f"[Train] processes: one of the {self._group.processes} processes stopped. Training ended in all of them. "
            "Read the log of each process, then start all of them to resume after the last checkpoint."
        )

    def leave(self, *, is_done: bool) -> None:
        """Stop the heartbeat. Peers continue only if this process is done."""
        with self._lock:
            if self._is_over.is_set():
                return
            self._is_over.set()
            if is_done or self.failure:
                self._write("done" if is_done else [type(self.failure).__name__, str(self.failure)])
            else:
                self._path(self._group.rank).unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._is_over.wait(_BEAT_SECONDS):
            # Shared file systems have transient errors.
            with contextlib.suppress(OSError):
                self._beat()
                if self.failure is None and (failure := self._find_failure()):
                    self.failure = failure
                    self._has_failed.set()
                    # The call repeats, because a callback of the garbage collector swallows an interrupt.
                    while not self._is_over.wait(_PATIENCE_SECONDS):
                        self._on_failure(failure)
                        self._is_over.wait(_SILENT_SECONDS)

    def _beat(self) -> None:
        with self._lock:
            if not self._is_over.is_set():
                self._write()

    def _write(self, end: Any = None) -> None:
        path = self._path(self._group.rank)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(self._state | {"end": end}), encoding="utf-8")
        os.replace(temporary, path)

    def _find_failure(self) -> PipelineError | None:
        """Error of the first failed process. None if all are running."""
        return next(filter(None, map(self._check_process, range(self._group.processes))), None)

    def _check_process(self, rank: int) -> PipelineError | None:
        latest, now = self._read(rank), time.monotonic()
        if rank == self._group.rank:
            if latest is None or latest["token"] == self._state["token"]:
                return None
            return SettingsError(
                f"[Train] process_id: {rank} is in use by a process on {latest['host']}. Pass a different number from "
                f"0 to {self._group.processes - 1} to each process."
            )
        content, changed_at = self._changes.get(rank, (None, now))
        if latest is not None and latest != content:
            # The file of an earlier run does not change.
            is_running = content is not None and content["token"] == latest["token"]
            content, changed_at = self._changes[rank] = latest, now
            if is_running and latest["settings"] != self._state["settings"]:
                process, host = (rank, latest["host"]) if rank else (self._group.rank, self._state["host"])
                return SettingsError(
                    f"[Train] processes: process {process} on {host} has other settings, code or records. Start all "
                    "processes with the same command, version and storage root."
                )
            if is_running:
                self._present.setdefault(rank, latest)
        if rank not in self._present or content["end"] == "done":
            return None
        if isinstance(content["end"], list):
            name, text = content["end"]
            return SettingsError(text) if name == "SettingsError" else WorkerDiedError(text)
        # A shared file system may hide a file for a moment.
        if now - changed_at <= (3 * _BEAT_SECONDS if latest is None else _SILENT_SECONDS):
            return None
        return WorkerDiedError(
            f"[Train] processes: process {rank} of {self._group.processes} on {self._present[rank]['host']} stopped. "
            "Training ended in all processes. Start all processes to resume after the last checkpoint."
        )

    def _path(self, rank: int) -> Path:
        return self.root / FOLDER_NAME / f"{rank}.json"

    def _read(self, rank: int) -> dict | None:
        try:
            # One open file gives content and time of the same version.
            with self._path(rank).open(encoding="utf-8") as file:
                content = json.load(file) | {"at": os.fstat(file.fileno()).st_mtime}
        except (OSError, ValueError, TypeError):
            return None
        return content if content.keys() >= _EMPTY.keys() else None


def end_all() -> None:
    """Announce to the other processes that this process has finished."""
    for heartbeat in _heartbeats:
        heartbeat.leave(is_done=True)
