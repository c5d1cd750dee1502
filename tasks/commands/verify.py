"""``verify``: every artefact under the storage root, read to the last byte.

An artefact is known by its place and name, so one without a manifest counts, and a run that the report shows.
"""

import argparse
import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import MANIFEST_NAME, read_manifest, unreadable
from pipeline.errors import DamagedArtefactError, SettingsError, UnreadableArtefactError
from pipeline.stage_process import in_child
from tasks.commands.command import command
from tasks.dated_reports import histories, is_date
from tasks.export import Export
from tasks.records import Records
from tasks.report import Report, dated_reports_folder
from tasks.sections import root_folder
from tasks.source import Source
from tasks.stage import Stage
from tasks.train import Train

_OF_A_STAGE = re.compile(r".+-[0-9a-f]{12}")
_OF_A_CHECKPOINT = re.compile(r"epoch-\d+")


@command()
def verify(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Read every artifact under the storage root to the last byte."""
    root = root_folder()
    folders = dict.fromkeys(_artefacts(root))
    if not folders:
        # A mistaken root must not pass for a valid one.
        raise SettingsError(
            f"{root}: expected artefacts to verify, found none. Name the storage root with --Storage-root, or make "
            "some with: make pipeline"
        )
    states, read_bytes = [], 0
    for folder in folders:
        state, says = "valid", str(folder)
        try:
            if _is_closed(folder):
                raise unreadable(folder)
            # The report's folder may hold what is not ours.
            job = {"folder": folder, "shared": folder == root / Report.kind}
            in_child("pipeline.runs.verify:verify_artefact", job)
            read_bytes += sum(entry["bytes"] for entry in read_manifest(folder)["files"])
        except UnreadableArtefactError as error:
            state, says = "unreadable", str(error)
        except DamagedArtefactError as error:
            state, says = "damaged", str(error)
        states.append(state)
        print(f"{state:8} {says}")
    valid, damaged, closed = map(states.count, ("valid", "damaged", "unreadable"))
    print(
        f"{len(states)} artefacts under {root}: {valid} valid, {read_bytes:,} bytes read; {damaged} damaged, "
        f"{closed} unreadable"
    )
    return DamagedArtefactError.exit_code if damaged else UnreadableArtefactError.exit_code if closed else 0


def _artefacts(root: Path) -> Iterator[Path]:
    """Every folder where an artefact is, or must be; some twice. A folder of artefacts that may not be read, too."""
    for kind in (*(stage.kind for stage in (Source, Records, Train, Export)), *layout.PAST_KINDS):
        yield from _named(root / kind, _OF_A_STAGE.fullmatch)
    for folder in _named(root / layout.CHECKPOINTS, _OF_A_STAGE.fullmatch):
        yield from _named(folder, _OF_A_CHECKPOINT.fullmatch)
    report = root / Report.kind
    if report.exists():
        yield report
        with contextlib.suppress(DamagedArtefactError):
            shown = read_manifest(report)["identity"].get("upstream", {}).get("runs", {})
            yield from (root / Train.kind / name for name in sorted(shown))
    for history in histories(dated_reports_folder()):
        yield from _named(history, is_date)


def _named(place: Path, is_ours: Callable[[str], object]) -> list[Path]:
    """The folders in a place that are named as ours, or hold a manifest; the place itself where it may not be read."""
    if _is_closed(place):
        return [place]
    folders = (folder for folder in layout.artefact_folders(place) if folder.is_dir())
    return [folder for folder in folders if is_ours(folder.name) or os.path.lexists(folder / MANIFEST_NAME)]


def _is_closed(folder: Path) -> bool:
    try:
        return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK, effective_ids=True)
    except PermissionError:
        # A folder above it is closed.
        return True
