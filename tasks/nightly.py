"""The Nightly task, which keeps a dated report. RangeDaily requests it for all missing dates.

Dates are in UTC, like those of Luigi's RangeDaily. A dated report describes the dataset, code and settings at the time
of the run. If the thresholds have changed, the current runs are checked again. A past date keeps its report if that
describes other runs.
"""

import contextlib
import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime

import luigi

from pipeline.artifacts import layout
from pipeline.errors import DamagedArtifactError, refuse
from pipeline.stage_process import in_child
from tasks.process import console, lock
from tasks.report import Report, history_folder, is_past, publish_dated_report, read_dated_report, read_dated_reports
from tasks.settings import Storage, of_this_root, root_folder
from tasks.stage import stages_up_to

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
        from tasks import retention

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


def today() -> date:
    """The date in UTC."""
    return datetime.now(UTC).date()
