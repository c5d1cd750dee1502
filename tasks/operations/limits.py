"""Limits: which runs and dated reports a schedule need not keep, by ``[Storage] keep_runs`` and ``keep_days``.

Beside the data's way; decides, removes nothing, and has nothing of Luigi. A limit that is not 0 keeps: where both are
set, a run stays for either of them, and only what neither keeps may go. With both 0 everything stays.

``keep_runs`` counts each experiment by itself, and in it each row: the runs of one network that agree in what a sweep
varies (batch, recipe, precision, device, ...) but the seed. So a sweep of any size counts as one run of each row.
"""

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import read_manifest
from pipeline.config.report import SWEPT
from pipeline.errors import DamagedArtefactError
from pipeline.problems.judged import merit
from pipeline.problems.units import IMAGE_CLASSIFICATION
from pipeline.runs.record import RECORD_NAME, is_stand_in, names
from tasks.dated_reports import DatedReport, is_past

_FINISHED = "finished"
# Fields of the record. Of a setting that leaves something open it has what was asked for beside what came of it.
_ROW = (
    "model",
    *(name for name in names("setting") if name != "seed" and name.removeprefix("requested_") in SWEPT.values()),
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """What of a run decides whether it is kept."""

    folder: Path
    fingerprint: str
    experiment: str
    row: tuple[str, ...]
    finished_at: datetime
    is_finished: bool
    merit: float


def read_runs(folder: Path) -> list[Run]:
    """Every run in the folder whose record can be read; of another nothing is known, and nothing decided.

    A date without a time zone cannot be compared with others: it is no date.
    """
    runs = []
    for path in layout.artefact_folders(folder):
        try:
            record = json.loads((path / RECORD_NAME).read_bytes())
            finished_at = datetime.fromisoformat(record["finished_at"])
            if finished_at.tzinfo is None:
                raise ValueError(f"finished_at: expected a date with its time zone, got {record['finished_at']!r}")
            run = Run(
                folder=path,
                fingerprint=read_manifest(path)["fingerprint"],
                experiment=experiment_of(record),
                row=tuple(str(record.get(name)) for name in _ROW),
                finished_at=finished_at,
                is_finished=record.get("status", _FINISHED) == _FINISHED,
                # Generated examples say nothing of the dataset that was asked for.
                merit=-math.inf if is_stand_in(record) else merit(record.get("problem", IMAGE_CLASSIFICATION), record),
            )
        except (FileNotFoundError, NotADirectoryError, DamagedArtefactError):
            continue
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            _logger.warning("%s: kept, and left out of retention: %r", path / RECORD_NAME, error)
            continue
        runs.append(run)
    return runs


def experiment_of(record: Mapping) -> str:
    """To which experiment the run of a record belongs; as the schema has it for those of before there were any."""
    return str(record.get("experiment") or record.get("requested_dataset") or record["dataset"])


def superfluous_runs(
    runs: Sequence[Run], *, needed: Iterable[str], keep_runs: int, keep_days: int, now: datetime
) -> dict[Path, str]:
    """Folder → why the run may go: it is beyond every limit there is, and nothing else holds it.

    Args:
        runs: all there are.
        needed: fingerprints of those that a report is about.
        keep_runs: so many of the newest of each row stay; 0: none for being among the newest.
        keep_days: those that finished within so many days stay; 0: none for their age.
        now: with a time zone.

    The best run of each experiment and the newest of it that finished always stay.
    """
    newest_first = sorted(runs, key=lambda run: run.finished_at, reverse=True)
    finished = [run for run in newest_first if run.is_finished]
    held = {run.folder for run in runs if run.fingerprint in set(needed)}
    for experiment in {run.experiment for run in finished}:
        mine = [run for run in finished if run.experiment == experiment]
        held |= {mine[0].folder, max(mine, key=lambda run: run.merit).folder}
    beyond = {}
    if keep_days:
        beyond[f"older than {keep_days} days"] = {
            run.folder for run in runs if is_older(run.finished_at, keep_days, now)
        }
    if keep_runs:
        rows = {(run.experiment, run.row): [] for run in newest_first}
        for run in newest_first:
            rows[run.experiment, run.row].append(run.folder)
        beyond[f"there are {keep_runs} newer ones like it"] = {
            folder for row in rows.values() for folder in row[keep_runs:]
        }
    going = set.intersection(*beyond.values()) - held if beyond else set()
    return dict.fromkeys(sorted(going), ", ".join(beyond))


def superfluous_reports(reports: Sequence[DatedReport], *, keep_days: int, today: date) -> list[DatedReport]:
    """The dated reports that may go; the newest always stays."""
    newest = max((report.date for report in reports), default=None)
    return [report for report in reports if report.date != newest and is_past(report.date, keep_days, today)]


def is_older(moment: datetime, keep_days: int, now: datetime) -> bool:
    """Whether it was more than so many days ago."""
    return bool(keep_days) and moment < now - timedelta(days=keep_days)
