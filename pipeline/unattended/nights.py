"""Nights: dated copies of the report, what a schedule leaves behind for each date it ran for.

Beside the data's way; the copy of a date is an artefact like any other (see manifest.py), in a folder named by the
date. Its manifest says which runs the report was asked for, and the date whose inputs were the same if there is one. A
copy is history: it never becomes stale. One that is damaged or gone counts as not made.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from pipeline.artefacts.manifest import MANIFEST_NAME, check_files, publishing, read_manifest, write_manifest
from pipeline.errors import DamagedArtefactError

# Their manifests are a few kilobytes each; a report of hundreds of runs is a few megabytes.
_BYTES_NEEDED = 5_000_000


@dataclass(frozen=True)
class Night:
    """One date's copy of the report.

    Attributes:
        date: the date it is of, in UTC.
        folder: where it lies.
        runs: fingerprints of the runs it was asked for.
        same_as: the date that had the same inputs first, as ISO 8601, or None.
        made_on: the date on which it was made; a later one if it was backfilled.
        demands: what the gate that its runs have passed demanded of them; empty: nothing.
    """

    date: date
    folder: Path
    runs: tuple[str, ...]
    same_as: str | None
    made_on: date
    demands: Mapping[str, float] = field(default_factory=dict)


def read_night(folder: Path) -> Night:
    """One date's copy of the report.

    Raises:
        DamagedArtefactError: it is not whole, or not the copy of the date it is named by.
    """
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    try:
        identity = manifest["identity"]
        if identity["date"] != folder.name:
            raise ValueError(f"of {identity['date']!r:.80}")
        return Night(
            date=date.fromisoformat(folder.name),
            folder=folder,
            runs=tuple(map(str, identity["runs"])),
            same_as=manifest["same_as"],
            made_on=date.fromisoformat(manifest["created_at"][:10]),
            demands=dict(manifest.get("demands", {})),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedArtefactError(
            f"{folder / MANIFEST_NAME}: not the manifest of a dated report ({error!r})"
        ) from None


def whole_nights(history: Path) -> tuple[list[Night], list[DamagedArtefactError]]:
    """The dates that have a whole copy, oldest first, and what is wrong with the others."""
    nights, damage = [], []
    for folder in sorted(path for path in history.glob("*") if is_date(path.name)):
        try:
            nights.append(read_night(folder))
        except DamagedArtefactError as error:
            damage.append(error)
    return nights, damage


def is_date(name: str) -> bool:
    """Whether a folder of this name is a date's; others lie there too: a note, .DS_Store."""
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def publish_night(history: Path, day: date, report: Path, *, demands: Mapping[str, float] | None = None) -> Night:
    """Copy the published report to its date, whole or not at all.

    Args:
        history: folder of the dated copies.
        day: the date, in UTC.
        report: the report's folder.
        demands: of the gate that the report has passed.

    Raises:
        DamagedArtefactError: the report is not whole.
        StorageError: the copy cannot be written.
    """
    manifest = read_manifest(report)
    check_files(report, manifest, shared=True)
    runs = manifest["identity"]["upstream"]["current"]
    same_as = _first_alike(whole_nights(history)[0], day, runs)
    identity = {"date": day.isoformat(), "report": manifest["fingerprint"], "runs": runs}
    with publishing(history / day.isoformat(), bytes_needed=_BYTES_NEEDED) as temporary:
        for entry in manifest["files"]:
            shutil.copyfile(report / entry["name"], temporary / entry["name"])
        write_manifest(
            temporary, stage="Nightly", identity=identity, details={"same_as": same_as, "demands": dict(demands or {})}
        )
    return read_night(history / day.isoformat())


def referred_runs(history: Path) -> set[str]:
    """Fingerprints of the runs that dated reports were asked for."""
    return {run for night in whole_nights(history)[0] for run in night.runs}


def missing_between(nights: Iterable[Night]) -> int:
    """Dates between the first and the last that have no copy."""
    days = [night.date.toordinal() for night in nights]
    return max(days) - min(days) + 1 - len(days) if days else 0


def _first_alike(nights: Iterable[Night], day: date, runs: Sequence[str]) -> str | None:
    """The date that was asked for the same runs first: a run's fingerprint covers dataset, code and settings."""
    alike = [night for night in nights if night.runs == tuple(runs) and night.date != day]
    # Dates are not made in their order where some are backfilled; the first that was made had none to be like.
    alike.sort(key=lambda night: (night.same_as is not None, night.date))
    return alike[0].date.isoformat() if alike else None
