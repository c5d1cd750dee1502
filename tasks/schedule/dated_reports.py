"""Dated reports, which are copies of the report of a scheduled run.

A copy is an artifact in a folder named by the date. It never becomes stale. A damaged copy is replaced.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, check_files, read_manifest, write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.errors import DamagedArtifactError

# A report of hundreds of runs is a few megabytes.
_BYTES_NEEDED = 5_000_000


@dataclass(frozen=True)
class DatedReport:
    """One date's copy of the report."""

    #: In UTC.
    date: date
    folder: Path
    #: Fingerprints of the required runs.
    runs: tuple[str, ...]
    #: Thresholds of the gate that the runs passed.
    thresholds: Mapping[str, float] = field(default_factory=dict)


def read_dated_report(folder: Path) -> DatedReport:
    """One date's copy of the report. A DamagedArtifactError if it is not valid, or the copy of another date."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    day, runs = (manifest["identity"].get(name) for name in ("date", "runs"))
    if day != folder.name or not isinstance(runs, list):
        raise DamagedArtifactError(f"{folder / MANIFEST_NAME}: expected the report of {folder.name}, got {day!r:.80}.")
    return DatedReport(date.fromisoformat(day), folder, tuple(runs), manifest.get("thresholds", {}))


def read_dated_reports(history: Path) -> tuple[list[DatedReport], list[DamagedArtifactError]]:
    """The valid copies, oldest first, and the errors of the others."""
    reports, damage = [], []
    for folder in sorted(path for path in history.glob("*") if is_date(path.name)):
        try:
            reports.append(read_dated_report(folder))
        except DamagedArtifactError as error:
            damage.append(error)
    return reports, damage


def is_date(name: str) -> bool:
    """Whether a folder has the name of a date. Others may be there too, such as notes and .DS_Store."""
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def is_past(day: date, keep_days: int, today: date) -> bool:
    """Whether the date's report may be removed, and need not be made. ``keep_days`` 0 means never."""
    return bool(keep_days) and day <= today - timedelta(days=keep_days)


def publish_dated_report(
    history: Path, day: date, report: Path, *, thresholds: Mapping[str, float] | None = None
) -> DatedReport:
    """Copy the valid report to its date. ``thresholds`` are those of the gate that it passed."""
    manifest, folder = read_manifest(report), history / day.isoformat()
    check_files(report, manifest, shared=True)
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
    return {run for history in histories(folder) for report in read_dated_reports(history)[0] for run in report.runs}
