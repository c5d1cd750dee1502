"""Dated copies of the report, and the Nightly task, which keeps one. RangeDaily requests it for all missing dates.

Dates are in UTC, like those of Luigi's RangeDaily. A copy is an artifact in a folder named by the date. It describes
the dataset, code and settings at the time of the run, and never becomes stale. A damaged copy is replaced. If the
thresholds have changed, the current runs are checked again. A past date keeps its report if that describes other runs.
"""

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import luigi

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, check_files, read_manifest, write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.errors import DamagedArtifactError, refuse
from pipeline.stage_process import in_child
from tasks.process import console, lock
from tasks.report import Report
from tasks.settings import Storage, of_this_root, root_folder, schedule_name
from tasks.stage import stages_up_to

# A report of hundreds of runs is a few megabytes.
_BYTES_NEEDED = 5_000_000

_logger = logging.getLogger(__name__)


class Nightly(luigi.Task):
    """The task of ``luigi --module tasks Nightly --date 2026-11-20``. Its artifact is the dated report."""

    date = luigi.DateParameter(default=datetime.now(UTC).date(), description="The date, in UTC; today's by default.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        console.configure()
        super().__init__(*args, **kwargs)
        self.task_id = of_this_root(self.task_id)
        if self.date > today():
            refuse("Nightly", "date", f"a date up to {today()} (UTC)", self.date.isoformat())
        # Created here together with all stages, so that an invalid setting is refused before any work starts.
        self.report = Report()
        self.report.is_copied = True
        self.folder = history_folder() / self.date.isoformat()
        if (processes := max((run.settings.processes for run in self.report.inputs), default=1)) > 1:
            refuse("Train", "processes", "1 for scheduled runs", processes)
        self._is_judged = False

    @classmethod
    def bulk_complete(cls, parameter_tuples: Iterable[date]) -> list[date]:
        """The dates that have a report for the current thresholds, or need none."""
        with console.leaving_on_errors():
            # RangeDaily calls this before it creates a task. An invalid setting is refused before any work starts.
            thresholds, reports = Report().thresholds(), read_dated_reports(history_folder())
        done = {report.date for report in reports if not thresholds or report.thresholds == thresholds}
        return [day for day in parameter_tuples if day in done or is_past(day)]

    def requires(self) -> Report:
        return self.report

    def complete(self) -> bool:
        """Whether the date has its report, or needs none. Otherwise, lock the storage root."""
        if is_past(self.date):
            return True
        try:
            thresholds, kept = self.report.thresholds(), read_dated_report(self.folder)
            if self._is_judged or not thresholds or kept.thresholds == thresholds:
                return True
            _logger.info("%s: checking the report again, because the thresholds changed.", self)
        except DamagedArtifactError as error:
            if self.folder.exists():
                _logger.warning("%s: %s", self, error)
        with console.leaving_on_errors():
            lock.hold(root_folder(), on_busy=Storage().on_busy)
        return False

    def run(self) -> None:
        """Keep a copy of the report for the date."""
        # Imported here, because the schema of a run imports pydantic, a fifth of the time of a run without work.
        from tasks.schedule import retention

        if retention.apply_limits(stages_up_to(self.report)):
            # The report shows runs that were removed.
            self.report.run()
        with contextlib.suppress(DamagedArtifactError):
            kept = read_dated_report(self.folder)
            self._is_judged = True
            if self.date < today() and kept.runs != tuple(self.report.current()):
                _logger.info("%s: keeping the report of that date. The current runs reach the thresholds.", self)
                return
        report = root_folder() / Report.kind
        publish_dated_report(history_folder(), self.date, report, thresholds=self.report.thresholds())
        print(f"Report of {self.date}: {self.folder / 'report.html'}")
        if self.date == today() and (root_folder() / layout.WATCHED).is_dir():
            job = {"root": root_folder(), "experiment": self.report.experiment_name()}
            for difference in in_child("pipeline.predict.watch:check_recent", job):
                _logger.warning("%s", difference)

    def __str__(self) -> str:
        return f"Nightly {self.date}"


@Nightly.event_handler(luigi.Event.DEPENDENCY_PRESENT)
def say_nothing_to_do(nightly: Nightly) -> None:
    """Luigi found that there is nothing to do for the date."""
    reason = "older than [Storage] keep_days" if is_past(nightly.date) else "the report exists"
    _logger.info("%s: nothing to do, %s.", nightly, reason)


def history_folder() -> Path:
    """Folder of the dated reports of this experiment. The folder above it has those of config.ini alone."""
    return root_folder() / layout.DATED_REPORTS / schedule_name()


@dataclass(frozen=True)
class DatedReport:
    """One date's copy of the report."""

    #: In UTC.
    date: date
    folder: Path
    #: Fingerprints of the required runs.
    runs: tuple[str, ...]
    #: Thresholds of the gate that the runs passed.
    thresholds: Mapping[str, float]


def read_dated_report(folder: Path) -> DatedReport:
    """One date's copy of the report. A DamagedArtifactError if it is not valid, or the copy of another date."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    day, runs = (manifest["identity"].get(name) for name in ("date", "runs"))
    if day != folder.name or not isinstance(runs, list):
        raise DamagedArtifactError(f"{folder / MANIFEST_NAME}: expected the report of {folder.name}, got {day!r:.80}.")
    return DatedReport(date.fromisoformat(day), folder, tuple(runs), manifest.get("thresholds", {}))


def read_dated_reports(history: Path) -> list[DatedReport]:
    """The valid copies, oldest first."""
    reports = []
    for folder in sorted(path for path in history.glob("*") if is_date(path.name)):
        with contextlib.suppress(DamagedArtifactError):
            reports.append(read_dated_report(folder))
    return reports


def is_date(name: str) -> bool:
    """Whether a folder has the name of a date. Others may be there too, such as notes and .DS_Store."""
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def is_past(day: date) -> bool:
    """Whether the date's report may be removed, and need not be made. ``keep_days`` 0 means never."""
    keep_days = Storage().keep_days
    return bool(keep_days) and day <= today() - timedelta(days=keep_days)


def publish_dated_report(
    history: Path, day: date, report: Path, *, thresholds: Mapping[str, float] | None = None
) -> DatedReport:
    """Copy the valid report to its date. ``thresholds`` are those of the gate that it passed."""
    manifest, folder = read_manifest(report), history / day.isoformat()
    check_files(report, manifest)
    runs = manifest["identity"]["upstream"]["current"]
    identity = {"date": day.isoformat(), "report": manifest["fingerprint"], "runs": runs}
    with publishing(folder, bytes_needed=_BYTES_NEEDED) as temporary:
        for entry in manifest["files"]:
            shutil.copyfile(report / entry["name"], temporary / entry["name"])
        # The links to runs are relative to the page.
        page, up = temporary / layout.REPORT_PAGE, os.path.relpath(report, folder)
        page.write_text(page.read_text("utf-8").replace('href="../', f'href="{up}/../'), "utf-8")
        write_manifest(temporary, stage="Nightly", identity=identity, details={"thresholds": dict(thresholds or {})})
    return read_dated_report(folder)


def histories(folder: Path) -> list[Path]:
    """The folders of dated reports, one for config.ini and one per experiment."""
    return [folder, *(path for path in layout.artifact_folders(folder) if path.is_dir() and not is_date(path.name))]


def referred_runs(folder: Path) -> set[str]:
    """Fingerprints of the runs in the dated reports of all experiments."""
    return {run for history in histories(folder) for report in read_dated_reports(history) for run in report.runs}


def today() -> date:
    """The date in UTC."""
    return datetime.now(UTC).date()
