"""History: an append-only log of every run reported under a storage root, one JSON object per line.

A line is the record of a run without its evidence. A later line about the same run replaces an earlier one. Runs are
comparable if they share all compared fields of the record and the hardware. An unknown value equals no other.
"""

import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import create_model

from pipeline.errors import DamagedArtefactError, UnreadableArtefactError
from pipeline.report.data.scenarios import grouped
from pipeline.runs import record
from pipeline.runs.untrusted import Untrusted, checked

HISTORY_NAME = "history.jsonl"

# The log has finished runs alone, and no object but the digests.
_NOT_KEPT = ("status", "time_breakdown")
# What the first lines left out, though every record had it.
_LEFT_OUT_AT_FIRST = (
    *("requested_dataset", "requested_device", "requested_precision", "requested_jit_compile", "jit_compile"),
    *("first_epoch_seconds", "val_loss"),
)
_logger = logging.getLogger(__name__)

Entry = Mapping[str, Any]


def read_history(path: Path) -> list[Entry]:
    """The entries of the log, each run once; a line that is not valid is named in the log and left out.

    Raises:
        UnreadableArtefactError: it is there but may not be read.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    except PermissionError:
        raise UnreadableArtefactError(
            f"{path}: cannot be read (Permission denied). Let this user read it (chmod u+rw, or chown); it cannot be "
            "rebuilt, for it has runs that are gone."
        ) from None
    schema = _schema(record.RunRecord)
    entries = []
    for number, line in enumerate(lines, start=1):
        try:
            entries.append(checked(schema, line, path, place=f"line {number}", remedy="").model_dump(mode="json"))
        except DamagedArtefactError as error:
            _logger.warning("left out of the history: %s", error)
    return merged(entries)


def merged(*logs: Iterable[Entry]) -> list[Entry]:
    """The entries of all logs, each run once, as the last that has it says."""
    return list({_which(entry): entry for log in logs for entry in log}.values())


def entries_of(runs: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """What the log keeps of runs that were finished, the oldest first."""
    schema = _schema(record.RunRecord)
    finished = [run for run in runs if run["status"] == record.FINISHED]
    return sorted((schema.model_validate(run).model_dump(mode="json") for run in finished), key=age_order)


def append_history(path: Path, entries: Iterable[Entry], *, past: Iterable[Entry]) -> None:
    """Add the entries that are not among the ``past`` ones of the log. They are on disk when the call returns.

    Raises:
        OSError: the log cannot be written.
    """
    known = {_which(entry): entry for entry in past}
    lines = [json.dumps(entry) + "\n" for entry in entries if known.get(_which(entry)) != entry]
    if not lines:
        return
    # What a killed process or a full disk left of a line stays a line of its own.
    torn = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * bool(torn) + "".join(lines))
        file.flush()
        os.fsync(file.fileno())


def trends(entries: Sequence[Entry], current: Collection[str]) -> list[dict[str, Any]]:
    """Accuracy and throughput over time for each group of comparable runs, those of the current runs first.

    Each group has its shared facts, `is_current`, and its `points`, oldest first.
    """
    of_a_point = ("finished_at", "fingerprint", "hostname", "seed", "val_accuracy", "examples_per_second")
    groups = [
        {
            **shared_facts(group[0]),
            "is_current": any(entry["fingerprint"] in current for entry in group),
            "points": [{name: entry[name] for name in of_a_point} for entry in group],
        }
        for group in comparable_groups(entries)
    ]
    newest_first = sorted(groups, key=lambda group: age_order(group["points"][-1]), reverse=True)
    return sorted(newest_first, key=lambda group: not group["is_current"])


def comparable_groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The entries in groups of comparable runs, the oldest of each first."""
    # What content a run of before there were digests was trained on is not known.
    known = sorted((entry for entry in entries if entry["content_digests"] is not None), key=age_order)
    return grouped(known, _of_a_group())


def shared_facts(entry: Entry) -> dict[str, Any]:
    """What the runs of an entry's group share."""
    return {name: entry[name] for name in (*_of_a_group(), "dataset")}


def age_order(entry: Entry) -> tuple[datetime, str]:
    """By when runs finished."""
    return datetime.fromisoformat(entry["finished_at"]), entry["fingerprint"]


def _of_a_group() -> tuple[str, ...]:
    return tuple(dict.fromkeys((*record.names(compared=True), *record.names("hardware"))))


@cache
def _schema(kind: type[Untrusted]) -> type[Untrusted]:
    """A line: the fields of a record but its evidence. A missing one is unknown, or the default if it came later."""
    fields = {}
    for name, field in kind.model_fields.items():
        about = record.about(name)
        if name in _NOT_KEPT or (about.part == "evidence" and about.repeated):
            continue
        of_record = Annotated[(field.annotation, *field.metadata)]
        if field.is_required() and name not in _LEFT_OUT_AT_FIRST:
            fields[name] = (of_record, ...)
        elif field.default_factory:
            fields[name] = (of_record, field)
        else:
            fields[name] = (of_record | None, field.default if about.since > 1 else None)
    # And what a record cannot know: what it was made from, and that it was not made here.
    fields |= {"made_from": (str | None, None), "code": (str | None, None), "fetched_from": (str, "")}
    return create_model("Line", __base__=Untrusted, **fields)


def _which(entry: Entry) -> tuple[Any, ...]:
    return entry["fingerprint"], entry["hostname"], entry["finished_at"]
