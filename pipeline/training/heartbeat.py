"""Presence files of the processes that train together, under the storage root that they share.

Each process rewrites its file every second. A process is gone if its file is missing or no longer changes. So the
others can name it, whatever error the end of its connection caused. The file of process 0 has its requests to train.
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
# A file that is as old belongs to a process that is gone.
_SILENT_SECONDS = 20.0
# A process that is at work may report a better reason than the end of another.
_PATIENCE_SECONDS = 10.0

_of_this_process: list["Heartbeat"] = []


class Heartbeat:
    """The presence of one process, and its view of the others."""

    def __init__(self, root: Path, group: ProcessGroup, *, settings: str, on_gone: Callable[[PipelineError], None]):
        """Announce this process under the storage root.

        ``settings`` is a digest of all settings, which have to be the same everywhere. ``on_gone`` is called in another
        thread if a process is gone and this one does not end by itself.
        """
        self.root, self._group, self._on_gone = root, group, on_gone
        self._mine = _content(settings, token=uuid.uuid4().hex)
        # Rank → the file's content, and when it last changed. Those in ``_present`` were seen to change.
        self._others: dict[int, tuple[dict, float]] = {}
        self._present: dict[int, dict] = {}
        self._lock = threading.Lock()
        self._is_over, self._has_failed = threading.Event(), threading.Event()
        self.failure: PipelineError | None = None
        (root / FOLDER_NAME).mkdir(parents=True, exist_ok=True)
        self._beat()
        # The clocks of hosts differ, but all files have that of the file system.
        self._since = (self._read(group.rank) or {"at": time.time()})["at"]
        threading.Thread(target=self._run, daemon=True).start()
        _of_this_process.append(self)
        atexit.register(self.leave, is_done=False)

    def wait_for_all(self, timeout_seconds: float) -> None:
        """Wait until all processes are present.

        Raises:
            SettingsError: a process was started with other settings.
            WorkerDiedError: processes are missing. The message names them.
        """
        deadline, processes = time.monotonic() + timeout_seconds, self._group.processes
        while len(self._present) < processes - 1:
            if self._has_failed.wait(0.1):
                raise self.failure
            if time.monotonic() > deadline:
                everyone = {self._group.rank: self._mine} | self._present
                missing = sorted({*range(processes)} - {*everyone})
                there = ", ".join(f"{rank} on {about['host']}" for rank, about in sorted(everyone.items()))
                self.failure = WorkerDiedError(
                    f"[Train] processes: {processes} are to train together, and after {timeout_seconds:.0f} s missing: "
                    f"{', '.join(map(str, missing))} (there: {there}). Start the same command on its host with "
                    f"--Train-process-id {missing[0]}, or allow more time with --Train-join-timeout-seconds."
                )
                raise self.failure

    def next_request(self, last: str, timeout_seconds: float) -> tuple[str, Any] | None:
        """Wait for a request of process 0 after ``last``: its id and content, or None if process 0 is done.

        Raises:
            PipelineError: process 0 refused this process, is missing or is gone.
        """
        begun = time.monotonic()
        while not self._has_failed.wait(_BEAT_SECONDS / 2):
            chief, waited = self._read(0) or _content(""), time.monotonic() - begun
            if 0 not in self._present:
                if self._had_nothing_to_do(chief, waited, timeout_seconds):
                    return None
                if waited > timeout_seconds:
                    raise WorkerDiedError(
                        f"[Train] processes: process 0 was not there within {timeout_seconds:.0f} s, by "
                        f"{self._path(0)}. Start the same command with --Train-process-id 0, on the same storage root."
                    )
            elif chief["end"] == "done":
                return None
            elif chief["request"] and chief["request"][0] != last:
                return tuple(chief["request"])
        raise self.failure

    def _had_nothing_to_do(self, chief: dict, waited: float, timeout_seconds: float) -> bool:
        """Whether process 0 was done before it met this one. At its start it may still replace a file of before."""
        if chief["end"] != "done" or chief["settings"] != self._mine["settings"]:
            return False
        age = self._since - chief["at"]
        return age < 0 or (age < timeout_seconds and waited > _PATIENCE_SECONDS)

    @contextlib.contextmanager
    def requesting(self, request: Any) -> Iterator[None]:
        """Ask the other processes to train with this one."""
        self._mine["request"] = [uuid.uuid4().hex, request]
        self._beat()
        try:
            yield
        finally:
            self._mine["request"] = None

    def explain(self, error: Exception) -> Exception:
        """The error that names the process that is gone, for an error that a lost connection caused."""
        self._has_failed.wait(_SILENT_SECONDS + 2 * _BEAT_SECONDS)
        if self.failure is None and self._group.processes == 2:
            # The connection can only be the one to the other process.
            self.failure = self._gone(1 - self._group.rank)
        return self.failure or WorkerDiedError(
            f"[Train] processes: one of the {self._group.processes} processes is gone, so training has stopped in all "
            f"of them; the log of that one says why ({error}). Finished epochs are kept: start all again to resume."
        )

    def leave(self, *, is_done: bool) -> None:
        """End the presence. The others go on only if this process is done."""
        if self._is_over.is_set():
            return
        self._is_over.set()
        path = self._path(self._group.rank)
        with self._lock:
            if is_done or self.failure:
                end = "done" if is_done else [type(self.failure).__name__, str(self.failure)]
                _write(path, self._mine | {"end": end})
            else:
                path.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._is_over.wait(_BEAT_SECONDS):
            # A file system may fail for a moment.
            with contextlib.suppress(OSError):
                self._beat()
                if self.failure is None and (failure := self._look()):
                    self.failure = failure
                    self._has_failed.set()
                    # Again, as a callback of the garbage collector swallows an interrupt.
                    while not self._is_over.wait(_PATIENCE_SECONDS):
                        self._on_gone(failure)
                        self._is_over.wait(_SILENT_SECONDS)

    def _beat(self) -> None:
        with self._lock:
            if not self._is_over.is_set():
                self._mine["beat"] += 1
                _write(self._path(self._group.rank), self._mine)

    def _look(self) -> PipelineError | None:
        """The reason to stop, by the files of all processes."""
        processes, own_rank, own = self._group.processes, self._group.rank, self._read(self._group.rank)
        if own and own["token"] != self._mine["token"]:
            return SettingsError(
                f"[Train] process_id: {own_rank} is there already, on {own['host']}. Give each of the {processes} "
                f"processes its own, from 0 to {processes - 1}."
            )
        return next(filter(None, (self._look_at(rank) for rank in range(processes) if rank != own_rank)), None)

    def _look_at(self, rank: int) -> PipelineError | None:
        found, now = self._read(rank), time.monotonic()
        content, since = self._others.get(rank, (None, now))
        if found is not None and found != content:
            # The file of an earlier run does not change.
            is_at_work = content is not None and content["token"] == found["token"]
            content, since = self._others[rank] = found, now
            if is_at_work and found["settings"] != self._mine["settings"]:
                other, host = (rank, found["host"]) if rank else (self._group.rank, self._mine["host"])
                return SettingsError(
                    f"[Train] processes: process {other}, on {host}, was started with other settings, other code or "
                    "other records. Start all with the same command, from the same version, on one storage root."
                )
            if is_at_work:
                self._present.setdefault(rank, found)
        if rank not in self._present or content["end"] == "done":
            return None
        if isinstance(content["end"], list):
            name, text = content["end"]
            return SettingsError(text) if name == "SettingsError" else WorkerDiedError(text)
        # A file system may fail to show a file for a moment.
        silent = 3 * _BEAT_SECONDS if found is None else _SILENT_SECONDS
        return self._gone(rank) if now - since > silent else None

    def _gone(self, rank: int) -> WorkerDiedError:
        where = f", on {self._present[rank]['host']}," if rank in self._present else ""
        return WorkerDiedError(
            f"[Train] processes: process {rank} of {self._group.processes}{where} is gone, so training has stopped in "
            "all of them. Finished epochs are kept: start all again to resume."
        )

    def _path(self, rank: int) -> Path:
        return self.root / FOLDER_NAME / f"{rank}.json"

    def _read(self, rank: int) -> dict | None:
        try:
            # Both of one file, which another may replace meanwhile.
            with self._path(rank).open(encoding="utf-8") as file:
                found = json.load(file) | {"at": os.fstat(file.fileno()).st_mtime}
        except (OSError, ValueError, TypeError):
            return None
        return found if found.keys() >= _content("").keys() else None


def end_all() -> None:
    """Tell the other processes that all work of this process is done."""
    for heartbeat in _of_this_process:
        heartbeat.leave(is_done=True)


def say_done(root: Path, *, settings: str) -> None:
    """Tell the other processes that process 0 has nothing to do."""
    (root / FOLDER_NAME).mkdir(parents=True, exist_ok=True)
    _write(root / FOLDER_NAME / "0.json", _content(settings) | {"end": "done"})


def _content(settings: str, token: str = "") -> dict:
    return {"host": socket.gethostname(), "token": token, "settings": settings, "beat": 0, "request": None, "end": None}


def _write(path: Path, content: dict) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, path)
