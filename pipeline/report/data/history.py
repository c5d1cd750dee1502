"""History of all reported runs of a storage root, an append-only log with a JSON object per line.

A line is the record of a run without its evidence. A later line about the same run replaces an earlier one. Runs are
comparable if they share the hardware and all compared fields of the record. An unknown value equals no other value.
"""

import json
import os
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.errors import UnreadableArtifactError
from pipeline.report.data import reading
from pipeline.report.data.reading import Entry, read_or_none
from pipeline.report.data.scenarios import facts, grouped
from pipeline.runs import record
from pipeline.runs.validation import checked

HISTORY_NAME = "history.jsonl"


def read_history(path: Path) -> list[Entry]:
    """Read the entries of the log, each run once. Invalid lines are logged and skipped."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    except PermissionError:
        problem = f"{path}: permission denied. Nothing can rebuild this list of removed runs."
        raise UnreadableArtifactError(problem, "Allow this user to read it (chmod u+rw, or chown).") from None
    parse = partial(checked, reading.Entry, path=path, remedy="")
    entries = (read_or_none(parse, text=line, label=f"line {number}") for number, line in enumerate(lines, start=1))
    return merged(filter(None, entries))


def merged(*logs: Iterable[Entry]) -> list[Entry]:
    """Return the entries of all logs, each run once, from the last log that contains it."""
    return list({_run_key(entry): entry for log in logs for entry in log}.values())


def entries_of(runs: Iterable[Entry]) -> list[Entry]:
    """Return the entries of finished runs, oldest first."""
    return sorted((run for run in runs if run.status == record.FINISHED), key=age_order)


def append_history(path: Path, entries: Iterable[Entry], *, past: Iterable[Entry]) -> None:
    """Append the entries that ``past`` lacks, and flush them to disk."""
    new_entries = list(entries)
    # Formatting lines dominates the time for a long log.
    keys = {_run_key(entry) for entry in new_entries}
    past_lines = {_line(entry) for entry in past if _run_key(entry) in keys}
    lines = [line for line in map(_line, new_entries) if line not in past_lines]
    if not lines:
        return
    # A kill or a full disk may have left an incomplete line. A newline separates it from the new ones.
    is_incomplete = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * bool(is_incomplete) + "".join(lines))
        file.flush()
        os.fsync(file.fileno())


def comparable_groups(entries: Sequence[Entry], current: Collection[str] = ()) -> list[list[Entry]]:
    """Group the entries by comparability. Groups of current runs come first, then the newest.

    The entries of a group start with the oldest.
    """
    # The content of the data is unknown without digests.
    entries_with_data = [entry for entry in entries if entry.content_digests is not None]
    fields = [*record.names(compared=True), *record.names("hardware")]
    groups = grouped(sorted(entries_with_data, key=age_order), fields)
    groups.sort(key=lambda group: age_order(group[-1]), reverse=True)
    return sorted(groups, key=lambda group: all(entry.fingerprint not in current for entry in group))


def age_order(entry: Entry) -> tuple[datetime, str, str]:
    """Return the sort key that orders entries by the end of the run."""
    return datetime.fromisoformat(entry.finished_at), entry.fingerprint, entry.hostname or ""


def _line(entry: Entry) -> str:
    fields = {*reading.Entry.model_fields} - {"status", "time_breakdown", *record.names("evidence", repeated=True)}
    return json.dumps(facts(entry, [name for name in reading.Entry.model_fields if name in fields])) + "\n"


def _run_key(entry: Entry) -> tuple[Any, ...]:
    return entry.fingerprint, entry.hostname, entry.finished_at
