"""History: an append-only log of every run reported under a storage root, one JSON object per line.

A line is the record of a run without its evidence. A later line about the same run replaces an earlier one. Runs are
comparable if they share all compared fields of the record and the hardware. An unknown value equals no other.
"""

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.errors import UnreadableArtifactError
from pipeline.report.data import reading
from pipeline.report.data.reading import Entry, or_none
from pipeline.report.data.scenarios import facts, grouped
from pipeline.runs import record
from pipeline.runs.validation import checked

HISTORY_NAME = "history.jsonl"


@dataclass(frozen=True)
class Trend:
    """Comparable runs, the oldest first. ``is_current``: some are requested."""

    entries: list[Entry]
    is_current: bool

    def to_json(self) -> dict[str, Any]:
        """The shared fields, and ``points`` with the metrics of each run."""
        of_a_point = ("finished_at", "fingerprint", "hostname", "seed", "test_accuracy", "examples_per_second")
        points = [facts(entry, of_a_point) for entry in self.entries]
        return {**shared_facts(self.entries[0]), "is_current": self.is_current, "points": points}


def read_history(path: Path) -> list[Entry]:
    """The entries of the log, each run once. A line that is not valid is named in the log and left out.

    Raises:
        UnreadableArtifactError: The file may not be read.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except PermissionError:
        raise UnreadableArtifactError(
            f"{path}: cannot be read (Permission denied). Let this user read it (chmod u+rw, or chown); it cannot be "
            "rebuilt, for it has runs that are gone."
        ) from None
    read = partial(checked, reading.Entry, path=path, remedy="")
    found = (or_none(read, text=line, place=f"line {number}") for number, line in enumerate(lines, start=1))
    return merged(filter(None, found))


def merged(*logs: Iterable[Entry]) -> list[Entry]:
    """The entries of all logs, each run once, by the last log that has it."""
    return list({_which(entry): entry for log in logs for entry in log}.values())


def entries_of(runs: Iterable[Entry]) -> list[Entry]:
    """The entries of finished runs, the oldest first."""
    return sorted((run for run in runs if run.status == record.FINISHED), key=age_order)


def append_history(path: Path, entries: Iterable[Entry], *, past: Iterable[Entry]) -> None:
    """Add the entries that are not among the ``past`` ones of the log. They are on disk when the call returns.

    Raises:
        OSError: The log cannot be written.
    """
    new = list(entries)
    # A log may be long, and making a line takes most of the time.
    keys = {_which(entry) for entry in new}
    known = {_line(entry) for entry in past if _which(entry) in keys}
    lines = [line for line in map(_line, new) if line not in known]
    if not lines:
        return
    # The rest of a line after a kill or on a full disk stays a line of its own.
    torn = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * bool(torn) + "".join(lines))
        file.flush()
        os.fsync(file.fileno())


def trends(groups: Iterable[list[Entry]], current: Collection[str]) -> list[Trend]:
    """The ``comparable_groups``, those of current runs first, then the newest."""
    newest_first = sorted(groups, key=lambda group: age_order(group[-1]), reverse=True)
    found = [Trend(group, any(entry.fingerprint in current for entry in group)) for group in newest_first]
    return sorted(found, key=lambda trend: not trend.is_current)


def comparable_groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The entries in groups of comparable runs, the oldest of each first."""
    # Without digests, the content of the data is unknown.
    known = [entry for entry in entries if entry.content_digests is not None]
    return grouped(sorted(known, key=age_order), _shared())


def shared_facts(entry: Entry) -> dict[str, Any]:
    """The facts that the runs of an entry's group share, as data for JSON."""
    return facts(entry, (*_shared(), "dataset"))


def age_order(entry: Entry) -> tuple[datetime, str]:
    """By the end of the run."""
    return datetime.fromisoformat(entry.finished_at), entry.fingerprint


def _shared() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*record.names(compared=True), *record.names("hardware"))))


def _line(entry: Entry) -> str:
    kept = {*reading.Entry.model_fields} - {"status", "time_breakdown", *record.names("evidence", repeated=True)}
    return json.dumps(facts(entry, [name for name in reading.Entry.model_fields if name in kept])) + "\n"


def _which(entry: Entry) -> tuple[Any, ...]:
    return entry.fingerprint, entry.hostname, entry.finished_at
