"""The Report stage, which compares all runs under the storage root, and dated copies of its report.

While a run trains, report.html shows it. A dated copy is an artifact in a folder named by the date. It never becomes
stale. A damaged copy is replaced.
"""

import contextlib
import logging
import os
import shutil
import statistics
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path

import luigi

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, check_files, read_manifest, write_manifest
from pipeline.artifacts.publish import publishing, publishing_in_place
from pipeline.artifacts.stamps import sha256_of
from pipeline.errors import DamagedArtifactError, GateError, refuse
from pipeline.problems.results import RESULTS, results_of
from pipeline.progress import duration
from pipeline.registry import Registry
from pipeline.settings.report import THRESHOLDS, ReportSettings
from tasks import config_files
from tasks.process import console
from tasks.process.console import RUN_ID
from tasks.settings import Storage, champion, report_page, root_folder, schedule_name
from tasks.stage import Artifact, Stage, differing, manifests_in
from tasks.train import Train

#: Time in seconds between two versions of report.html while a run trains.
REFRESH_SECONDS = 10
# A report of hundreds of runs is a few megabytes.
_BYTES_NEEDED = 5_000_000
_SHORT_NAMES = {"global_batch_size": "batch"}

_logger = logging.getLogger(__name__)


class Report(Stage, parameters=ReportSettings):
    """The artifact is always at the same path: ``report/`` under the storage root."""

    kind = layout.REPORT
    entry = "pipeline.report"
    packages = ("jinja2", "matplotlib", "pillow", "pyarrow", "rich", "scipy")
    publishing = staticmethod(publishing_in_place)
    # It depends on the runs of this machine.
    is_shared = False
    #: Whether a dated copy follows.
    is_copied = False

    def requires(self) -> list[Train]:
        combinations = self.settings.combinations()
        runs = [Train(**combination) for combination in combinations]
        for number, (run, settings) in enumerate(zip(runs, differing(combinations), strict=True), 1):
            # Luigi takes them in this order.
            run.priority, run.sweep = len(runs) - number, runs
            run.watching = partial(LiveReport, self, run)
            words = [f"{_SHORT_NAMES.get(name, name)} {value}" for name, value in settings.items()]
            run.place = ", ".join([f"run {number}/{len(runs)}", *words]) if len(runs) > 1 else ""
        return runs

    def upstream(self) -> object:
        # Runs by folder: one that was copied from another machine may have the fingerprint of one that was made here.
        in_use = self.in_use()
        return ({} if in_use is None else {"champion": in_use}) | {
            "current": self.current(),
            "runs": {folder.name: _digests(manifest) for folder, manifest in self.whole_runs()},
            "exports": {folder.name: one["seal"] for folder, one in manifests_in(root_folder() / layout.EXPORTS)},
            "determinism": _file_digests((root_folder() / layout.DETERMINISM).glob("[!.]*.json")),
            "published": _file_digests(config_files.experiments(config_files.PUBLISHED).values()),
            "searches": _file_digests(_searches()),
        }

    def check(self) -> None:
        source = self.inputs[0].inputs[0].source()
        if self.min_test_accuracy and source and not results_of(source.problem).has_accuracy:
            reason = f"0, as {source.problem} has no accuracy"
            refuse("Report", "min_test_accuracy", reason, self.min_test_accuracy, " Use max_test_loss.")
        super().check()

    def thresholds(self) -> dict[str, float]:
        """Thresholds of the gate. Empty if there is no gate."""
        required = {name: threshold for name in THRESHOLDS if (threshold := getattr(self, name))}
        return required | ({"not_worse": True} if self.not_worse == "true" else {})

    def in_use(self) -> str | None:
        """The run to compare with, as ``build_report`` takes it."""
        if self.champion != layout.CHAMPION:
            return self.champion or None
        folder = champion()
        return folder.name if folder else ""

    def current(self) -> list[str]:
        """Fingerprints of the required runs, in their order."""
        return [train.output().expected for train in self.inputs]

    def own_modules(self) -> tuple[str, ...]:
        # Those of packages alone: the module of pipeline's own sections imports numerical libraries.
        sections = Registry("sections", {})
        return (*RESULTS.outside_modules(*RESULTS), *sections.outside_modules(*sections))

    def output(self) -> Artifact:
        return Artifact(self.root / self.kind, self.identity())

    def whole_runs(self) -> list[tuple[Path, dict]]:
        """Folder and manifest of every valid run. Damaged runs are logged and left out."""
        runs = []
        for folder in layout.artifact_folders(root_folder() / Train.kind):
            try:
                manifest = read_manifest(folder)
                check_files(folder, manifest)
            except DamagedArtifactError as error:
                _logger.warning("Run not included in the report. %s", error)
            else:
                runs.append((folder, manifest))
        return runs

    def make(self, folder: Path) -> Mapping:
        """Add new runs to the history and write the report."""
        from pipeline import report

        history = root_folder() / report.HISTORY_NAME
        past = report.read_history(history)
        scoreboard = report.build_report(
            [run_folder for run_folder, _ in self.whole_runs()],
            current=self.current(),
            past=past,
            gate=report.Gate(**self.thresholds()),
            champion=self.in_use(),
            published=published_rows(),
            searches=report.read_searches(_searches()),
        )
        report.append_history(history, report.entries_of(scoreboard.runs), past=past)
        report.write_report(scoreboard, folder)
        self.table = report.format_table(scoreboard)
        self.failures = list(scoreboard.gate.failures) if scoreboard.gate else []
        # A run that fails its gate fails it again until something changes.
        return {"provisional": f"thresholds not reached. {'. '.join(self.failures)}"} if self.failures else {}

    def run(self) -> None:
        """Publish the report, then print it and its path, or raise the failures of the gate."""
        self.table, self.failures = "", []
        super().run()
        print(*filter(None, [self.table, f"Report: {report_page()}"]), sep="\n")
        if self.failures:
            raise GateError(f"{'. '.join(self.failures)}. The report contains the details.")


class LiveReport(threading.Thread):
    """Context manager that shows the training of its block in report.html. A failure to write is logged once."""

    def __init__(self, report: Report, run: Train, folder: Path) -> None:
        """``folder`` is where the training writes its metrics."""
        super().__init__(daemon=True)
        self._report, self._run, self._folder = report, run, folder
        self._started_at, self._ended, self._has_failed = datetime.now(UTC).isoformat(), threading.Event(), False
        self._earlier: Sequence | None = None
        self._page_folder: Path | None = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._has_failed = error is not None
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Write the page at each refresh, and again if the training fails."""
        try:
            while not self._ended.wait(REFRESH_SECONDS):
                # A training that fails before its first step does not replace the report.
                if self._earlier is not None or any(self._folder.iterdir()):
                    self._write(REFRESH_SECONDS)
            if self._has_failed and self._earlier is not None:
                self._write(0)
        # The training does not depend on the page.
        except Exception as error:
            _logger.warning("report.html does not show this training, because writing it failed: %r", error)

    def _write(self, refresh_seconds: int) -> None:
        # It imports matplotlib.
        from pipeline.report import render

        if self._earlier is None:
            runs = {manifest["fingerprint"]: folder for folder, manifest in self._report.whole_runs()}
            current = [fingerprint for fingerprint in self._report.current() if fingerprint in runs]
            self._earlier, artifact = render.sections_of_runs([*runs.values()], current), self._report.output()
            # The manifest lists no file from now on, so a kill leaves a stale report.
            details = {"provisional": "report.html shows a training that was not finished"}
            with publishing_in_place(artifact.folder) as folder:
                write_manifest(folder, stage=self._report.task_family, identity=artifact.identity, details=details)
            self._page_folder = artifact.folder
        training = {
            "experiment": self._run.experiment_name(),
            "run": self._run.place or self._run.settings.model,
            "epochs": self._run.settings.epochs,
            "started_at": self._started_at,
        }
        with publishing_in_place(self._page_folder) as folder:
            render.write_live_page(folder, self._folder, self._earlier, refresh_seconds=refresh_seconds, **training)


@Train.event_handler(luigi.Event.START)
def _begin(run: Train) -> None:
    if not run.place:
        return
    console.name_run(run.place)
    durations, pending = [], 0
    with contextlib.suppress(OSError):
        for one in run.sweep:
            try:
                manifest = read_manifest(one.output().folder)
            except DamagedArtifactError:
                pending += 1
            else:
                # A run that was skipped took no time.
                if manifest.get("run_id") == RUN_ID and "provisional" not in manifest:
                    durations.append(manifest["seconds"])
        if durations and pending:
            _logger.info("about %s left in this sweep", duration(pending * statistics.mean(durations)))


@Train.event_handler(luigi.Event.SUCCESS)
@Train.event_handler(luigi.Event.FAILURE)
def _end(*_: object) -> None:
    console.name_run("")


@Report.event_handler(luigi.Event.DEPENDENCY_PRESENT)
def say_nothing_to_do(report: Report) -> None:
    """Luigi found the whole DAG complete."""
    if report.inputs[0].processes > 1:
        Train().heartbeat.leave(is_done=True)
    _logger.info("%sEvery stage is fresh.", "" if report.is_copied else "Nothing to do. ")
    print(f"Report: {report_page()}")


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
    return bool(keep_days) and day <= datetime.now(UTC).date() - timedelta(days=keep_days)


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


def published_rows() -> list[dict]:
    """Published results of all experiments. A file that cannot be read is logged and left out."""
    from pipeline.report import read_published

    rows = []
    for name, path in config_files.experiments(config_files.PUBLISHED).items():
        try:
            rows += read_published(path, name)
        except DamagedArtifactError as error:
            _logger.warning("Published results not included in the report. %s", error)
    return rows


def _searches() -> list[Path]:
    return sorted((root_folder() / layout.SEARCHES).glob("[!.]*.json"))


def _file_digests(files: Iterable[Path]) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in files}


def _digests(manifest: Mapping) -> dict[str, str]:
    return {entry["name"]: entry["sha256"] for entry in manifest["files"] if entry["name"].endswith(("json", "jsonl"))}
