"""Nightly: the report of a date, kept. A schedule asks for one date, or with RangeDaily for all that are missing.

Dates are UTC, as Luigi's RangeDaily counts them. A date's report is that of the dataset, code and settings at the time
when it is made. A date that has its report is judged again if the gate demands something else now. A past date keeps
its own report if that is about other runs.
"""

import contextlib
import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta

import luigi

from pipeline.errors import DamagedArtifactError
from pipeline.settings.setting_error import refuse
from tasks.process import console, lock
from tasks.report import Report, history_folder
from tasks.schedule.dated_reports import is_past, publish_dated_report, read_dated_report, read_dated_reports
from tasks.settings import Storage, of_this_root, root_folder
from tasks.stage import from_below

_logger = logging.getLogger(__name__)


class Nightly(luigi.Task):
    """``luigi --module tasks Nightly --date 2026-11-20``; the artifact is ``report/history/…/2026-11-20/``."""

    date = luigi.DateParameter(default=datetime.now(UTC).date(), description="The date, in UTC; today's by default.")

    def __init__(self, *args: object, **kwargs: object) -> None:
        console.configure()
        super().__init__(*args, **kwargs)
        self.task_id = of_this_root(self.task_id)
        if self.date > today():
            refuse("Nightly", "date", f"a date up to {today()} (UTC)", self.date.isoformat())
        # Made here, and with it the stages below: a bad setting anywhere is refused before any work starts.
        self.report = Report()
        self.folder = history_folder() / self.date.isoformat()
        if (processes := max((run.settings.processes for run in self.report.below), default=1)) > 1:
            refuse("Train", "processes", "1 for scheduled runs", processes)
        self._is_judged = False

    @classmethod
    def bulk_complete(cls, parameter_tuples: Iterable[date]) -> list[date]:
        """Of these dates those that are done, by the gate of now, from one look at the folder."""
        with console.leaving_on_errors():
            # RangeDaily asks before it makes a task of ours, and a bad setting is refused before any work starts.
            thresholds = Report().thresholds()
        reports, _ = read_dated_reports(history_folder())
        done = {report.date for report in reports if not thresholds or report.thresholds == thresholds}
        return [day for day in parameter_tuples if day in done or _is_past(day)]

    def requires(self) -> Report:
        return self.report

    def complete(self) -> bool:
        """Whether the date has its report, or needs none any longer. If it does, the storage root is locked now."""
        if _is_past(self.date):
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
        """Keep a copy of the report, and say whether anything was new."""
        # Not above: with the schema of a run comes pydantic, a fifth of the time that a run without work takes.
        from tasks.schedule import retention

        if retention.apply_limits(from_below(self.report)):
            # Runs it showed are gone.
            self.report.run()
        with contextlib.suppress(DamagedArtifactError):
            kept = read_dated_report(self.folder)
            self._is_judged = True
            if self.date < today() and kept.runs != tuple(self.report.current()):
                _logger.info("%s: keeping the report of that date. The current runs reach the thresholds.", self)
                return
        report = root_folder() / Report.kind
        kept = publish_dated_report(history_folder(), self.date, report, thresholds=self.report.thresholds())
        if kept.made_on > self.date + timedelta(days=1):
            _logger.info("%s: backfilled on %s with the current runs.", self, kept.made_on)
        print(f"Report of {self.date}: {self.folder / 'report.html'}")

    def __str__(self) -> str:
        return f"Nightly {self.date}"


@Nightly.event_handler(luigi.Event.DEPENDENCY_PRESENT)
def say_nothing_to_do(nightly: Nightly) -> None:
    """Luigi found that there is nothing to do for the date."""
    past = _is_past(nightly.date)
    reason = "older than [Storage] keep_days" if past else "the report exists"
    _logger.info("%s: nothing to do, %s.", nightly, reason)


def _is_past(day: date) -> bool:
    return is_past(day, Storage().keep_days, today())


def today() -> date:
    """The date in UTC."""
    return datetime.now(UTC).date()
