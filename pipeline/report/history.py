"""History: every run ever reported under a storage root, and whether the newest is better or worse than those before.

An append-only log, one JSON object a line; a run stays in it when its folder is gone. Runs are comparable that share
all that comparison.py asks for, and the hardware. A change is held against the noise there is between runs that should
come out alike: the pooled sample standard deviation within sets of runs that differ in their seed alone, or, where
there are no such sets, the deviation of the earlier runs.
"""

import json
import logging
import math
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.errors import DamagedArtefactError
from pipeline.report.comparison import COMPARED, HARDWARE
from pipeline.report.fields import (
    COUNT,
    FIGURE,
    FLAG,
    OPTIONAL_COUNT,
    OPTIONAL_OBJECT,
    OPTIONAL_TEXT,
    TEXT,
    check,
    parse,
)
from pipeline.report.scenarios import grouped
from pipeline.runs.record import FINISHED

HISTORY_NAME = "history.jsonl"

#: Within so many deviations a change is taken for noise; 1 change in 20 between equal runs lies beyond.
NOISE_SIGMA = 2.0
_JUDGED = {"val_accuracy": "validation accuracy", "examples_per_second": "images/s"}
_MOST_EARLIER = 20

_FIELDS = {
    "fingerprint": TEXT,
    "made_from": OPTIONAL_TEXT,
    "finished_at": TEXT,
    "seed": COUNT,
    "dataset": TEXT,
    "dataset_verified": FLAG,
    "device_verified": FLAG,
    "content_digests": OPTIONAL_OBJECT,
    "model": TEXT,
    "recipe": TEXT,
    "epochs": COUNT,
    "global_batch_size": COUNT,
    "precision": TEXT,
    "effective_device": TEXT,
    "device_name": OPTIONAL_TEXT,
    "num_replicas": OPTIONAL_COUNT,
    "hostname": OPTIONAL_TEXT,
    "train_seconds": FIGURE,
    "examples_per_second": FIGURE,
    "val_accuracy": FIGURE,
}
_GROUP = (*COMPARED, *HARDWARE)
_logger = logging.getLogger(__name__)

Entry = Mapping[str, Any]


def read_history(path: Path) -> list[dict[str, Any]]:
    """The entries of the log, each run once; a line that is none is named in the log and left out."""
    if not path.exists():
        return []
    entries = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            entry = parse(line, f"line {number}", path)
            check(entry, _FIELDS, f"line {number}", path)
            datetime.fromisoformat(entry["finished_at"])
        except (DamagedArtefactError, ValueError) as error:
            _logger.warning("left out of the history: %s", error)
        else:
            entries.append(entry)
    return merged(entries)


def merged(*logs: Iterable[Entry]) -> list[Entry]:
    """The entries of all logs, each run once."""
    return list({_which(entry): entry for log in reversed(logs) for entry in log}.values())


def entries_of(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the log keeps of runs that were finished, the oldest first."""
    kept = [{name: _finite(run[name]) for name in _FIELDS} for run in runs if run["status"] == FINISHED]
    return sorted(kept, key=_age_order)


def append_history(path: Path, entries: Iterable[Entry], *, past: Iterable[Entry]) -> None:
    """Add those of the entries that the log does not have; forced to disk before the call returns.

    Args:
        path: the log.
        entries: what it shall have.
        past: what it has, as read_history gives it.

    Raises:
        OSError: it cannot be written.
    """
    known = {_which(entry) for entry in past}
    lines = [json.dumps(entry) + "\n" for entry in entries if _which(entry) not in known]
    if not lines:
        return
    # What a killed process or a full disk left of a line stays a line of its own.
    torn = path.exists() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * bool(torn) + "".join(lines))
        file.flush()
        os.fsync(file.fileno())


def trends(entries: Sequence[Entry], current: Sequence[str]) -> list[dict[str, Any]]:
    """Accuracy and throughput over time, for each group of comparable runs, those of the current runs first.

    Returns:
        For each group what its runs share, `is_current`, and its `points`, the oldest first, each of `finished_at`,
        `fingerprint`, `seed`, `val_accuracy` and `examples_per_second`.
    """
    points = ("finished_at", "fingerprint", "seed", *_JUDGED)
    groups = [
        {
            **{name: group[0][name] for name in (*_GROUP, "dataset")},
            "is_current": any(entry["fingerprint"] in current for entry in group),
            "points": [{name: entry[name] for name in points} for entry in group],
        }
        for group in _groups(entries)
    ]
    newest_first = sorted(groups, key=lambda group: _age_order(group["points"][-1]), reverse=True)
    return sorted(newest_first, key=lambda group: not group["is_current"])


def changes(entries: Sequence[Entry], current: Sequence[str]) -> list[dict[str, Any]]:
    """The current runs of each group of comparable runs against the last ones before them.

    Returns:
        For each group what its runs share; `fingerprints` of its current runs; `earlier`, the number of runs before
        them; `since`, when the last of those finished, None where there is none; and by figure (`val_accuracy`,
        `examples_per_second`) the mean `value`, the mean `baseline` of the last runs that differ in their seed alone,
        the `change`, its standard `deviation` if nothing but noise made it, and the change in units of that, `sigmas`.
        What is not known is None.
    """
    return [
        _change(mine, [entry for entry in group if entry not in mine])
        for group in _groups(entries)
        if (mine := _newest_of_each(entry for entry in group if entry["fingerprint"] in current))
    ]


def judge_change(change: Mapping[str, float | None]) -> str:
    """One word on one figure's change: better, worse, noise, new (nothing to compare with) or unknown (no spread)."""
    if change["change"] is None:
        return "new"
    if change["sigmas"] is None:
        return "noise" if change["change"] == 0 else "unknown"
    if abs(change["sigmas"]) <= NOISE_SIGMA:
        return "noise"
    return "better" if change["sigmas"] > 0 else "worse"


def _change(mine: Sequence[Entry], others: Sequence[Entry]) -> dict[str, Any]:
    began = min(map(_age_order, mine))
    earlier = [entry for entry in others if _age_order(entry) < began]
    last = [entry for entry in earlier if entry["made_from"] == earlier[-1]["made_from"]] if earlier else []
    last = _newest_of_each(last) if last and last[-1]["made_from"] is not None else earlier[-1:]
    return {
        **{name: mine[0][name] for name in (*_GROUP, "dataset")},
        "fingerprints": [entry["fingerprint"] for entry in mine],
        "earlier": len(earlier),
        "since": last[-1]["finished_at"] if last else None,
        **{name: _figure(name, mine, last, earlier[-_MOST_EARLIER:]) for name in _JUDGED},
    }


def _figure(name: str, mine: Sequence[Entry], last: Sequence[Entry], earlier: Sequence[Entry]) -> dict[str, Any]:
    value, baseline = _mean(name, mine), _mean(name, last)
    change = value - baseline if value is not None and baseline is not None else None
    noise = _noise(name, mine, earlier)
    deviation = noise * math.sqrt(1 / len(mine) + 1 / len(last)) if noise is not None and last else None
    return {
        "value": value,
        "baseline": baseline,
        "change": change,
        "deviation": deviation,
        "sigmas": change / deviation if change is not None and deviation else None,
    }


def _noise(name: str, mine: Sequence[Entry], earlier: Sequence[Entry]) -> float | None:
    """The standard deviation of one run; None where too few runs tell."""
    known = [entry for entry in (*earlier, *mine) if entry[name] is not None]
    alike = [_newest_of_each(group) for group in grouped(known, ["made_from"]) if group[0]["made_from"] is not None]
    sets = [[entry[name] for entry in group] for group in alike if len(group) > 1]
    freedom = sum(len(values) - 1 for values in sets)
    if freedom >= 2:
        return math.sqrt(sum(statistics.variance(values) * (len(values) - 1) for values in sets) / freedom)
    before = [entry[name] for entry in _newest_of_each(earlier) if entry[name] is not None]
    return statistics.stdev(before) if len(before) >= 3 else None


def _newest_of_each(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each fingerprint: a run that was made again is no second draw of its accuracy."""
    return sorted({entry["fingerprint"]: entry for entry in sorted(entries, key=_age_order)}.values(), key=_age_order)


def _mean(name: str, entries: Sequence[Entry]) -> float | None:
    values = [entry[name] for entry in entries]
    return statistics.fmean(values) if values and None not in values else None


def _groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    # What content a run of before there were digests was trained on is not known.
    known = sorted((entry for entry in entries if entry["content_digests"] is not None), key=_age_order)
    return grouped(known, _GROUP)


def _which(entry: Entry) -> tuple[Any, ...]:
    return entry["fingerprint"], entry["hostname"], entry["finished_at"]


def _age_order(entry: Entry) -> tuple[datetime, str]:
    return datetime.fromisoformat(entry["finished_at"]), entry["fingerprint"]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
