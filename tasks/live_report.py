"""Refreshes report.html while a run trains. The Report stage replaces it."""

import logging
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.artifacts.manifest import write_manifest
from pipeline.artifacts.publish import publishing_in_place

if TYPE_CHECKING:
    from pipeline.report.blocks import Section
    from tasks.report import Report
    from tasks.train import Train

#: Time in seconds between two versions of the page.
REFRESH_SECONDS = 10

_logger = logging.getLogger(__name__)


class LiveReport(threading.Thread):
    """Context manager that shows the training of its block in report.html. A failure to write is logged once."""

    def __init__(self, report: "Report", run: "Train", folder: Path) -> None:
        """``folder`` is where the training writes its metrics."""
        super().__init__(daemon=True)
        self._report, self._run, self._folder = report, run, folder
        self._started_at, self._ended, self._has_failed = datetime.now(UTC).isoformat(), threading.Event(), False
        self._earlier: Sequence[Section] | None = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._has_failed = error is not None
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Write the page at each refresh, and again if the training fails."""
        has_page = False
        try:
            while not self._ended.wait(REFRESH_SECONDS):
                # A training that fails before its first step does not replace the report.
                if has_page or any(self._folder.iterdir()):
                    self._write(REFRESH_SECONDS)
                    has_page = True
            if self._has_failed and has_page:
                self._write(0)
        # The training does not depend on the page.
        except Exception as error:
            _logger.warning("report.html does not show this training, because writing it failed: %r", error)

    def _write(self, refresh_seconds: int) -> None:
        # It imports matplotlib.
        from pipeline.report import live

        if self._earlier is None:
            runs = {manifest["fingerprint"]: folder for folder, manifest in self._report.whole_runs()}
            current = [fingerprint for fingerprint in self._report.current() if fingerprint in runs]
            self._earlier = live.sections_of_runs([*runs.values()], current)
        training = {
            "experiment": self._run.experiment_name(),
            "run": self._run.place or self._run.settings.model,
            "epochs": self._run.settings.epochs,
            "started_at": self._started_at,
        }
        with publishing_in_place(self._report_folder) as folder:
            live.write_live_page(folder, self._folder, self._earlier, refresh_seconds=refresh_seconds, **training)

    @cached_property
    def _report_folder(self) -> Path:
        """Folder of the report. The manifest lists no file from now on, so a kill leaves a stale report."""
        artifact = self._report.output()
        details = {"provisional": "report.html shows a training that was not finished"}
        with publishing_in_place(artifact.folder) as temporary:
            write_manifest(temporary, stage=self._report.task_family, identity=artifact.identity, details=details)
        return artifact.folder
