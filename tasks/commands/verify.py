"""The commands ``verify``, which reads every artifact, and ``verify-determinism``, which retrains a run."""

import argparse
import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import luigi

from pipeline import machine
from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest, unreadable
from pipeline.artifacts.publish import temporary_folder
from pipeline.errors import DamagedArtifactError, GateError, SettingsError, UnreadableArtifactError
from pipeline.settings.setting_error import refuse
from pipeline.stage_process import in_child
from tasks.commands.command import command
from tasks.process import lock
from tasks.process.interrupt import time_limit
from tasks.report import Report, dated_reports_folder
from tasks.schedule.dated_reports import histories, is_date
from tasks.settings import Storage, root_folder
from tasks.stage import Stage, stages_up_to
from tasks.train import Train

# Kinds whose folders are named by a fingerprint. A folder of such a name without a manifest is damaged.
_KINDS = (*layout.KINDS, *layout.PAST_KINDS)
_OF_A_STAGE = re.compile(r".+-[0-9a-f]{12}")
_OF_A_CHECKPOINT = re.compile(r"epoch-\d+")


@command()
def verify(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Read every artifact under the storage root, and compare it with its checksums."""
    root = root_folder()
    folders = dict.fromkeys(_artifacts(root))
    if not folders:
        # A wrong root must not count as valid.
        raise SettingsError(
            f"{root}: expected artifacts, found none. Pass the storage root with --Storage-root, or run "
            '"tensorcraft run".'
        )
    states, read_bytes = [], 0
    for folder in folders:
        state, details = "valid", str(folder)
        try:
            if _is_closed(folder):
                raise unreadable(folder)
            # People may keep files of their own in the report's folder.
            in_child("pipeline.runs.verify:verify_artifact", {"folder": folder, "shared": folder == root / Report.kind})
            read_bytes += sum(entry["bytes"] for entry in read_manifest(folder)["files"])
        except DamagedArtifactError as error:
            state = "unreadable" if isinstance(error, UnreadableArtifactError) else "damaged"
            details = str(error)
        states.append(state)
        print(f"{state:8} {details}")
    valid, damaged, closed = map(states.count, ("valid", "damaged", "unreadable"))
    print(
        f"{len(states)} artifacts in {root}, {valid} valid, {damaged} damaged, {closed} unreadable, "
        f"{read_bytes:,} bytes read"
    )
    return DamagedArtifactError.exit_code if damaged else UnreadableArtifactError.exit_code if closed else 0


@command()
def verify_determinism(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Retrain the run and compare the weights bit by bit."""
    from pipeline.runs.determinism import check_machine, compare, determinism_path, read_determinism

    train, before = Train(), None
    if train.processes > 1:
        refuse("Train", "processes", "1 for verify-determinism", train.processes)
    lock.hold(root_folder(), on_busy=Storage().on_busy)
    if not train.complete():
        for stage in stages_up_to(train):
            with _events_of(stage):
                stage.run()
    run = train.output().folder
    check_machine(run, machine.describe())
    train.fetch_inputs()
    with (
        temporary_folder(determinism_path(run), train.bytes_needed()) as scratch,
        _events_of(train),
        time_limit(train.task_family, train.time_limit_seconds),
    ):
        again = scratch / "run"
        again.mkdir()
        train.train_into(again, scratch / "checkpoints")
        # A damaged result is replaced.
        with contextlib.suppress(DamagedArtifactError):
            before = read_determinism(run)
        result = compare(run, again, before)
    if not result.is_identical:
        others = ", ".join(f"{one.weights_sha256} on {one.hostname}" for one in result.again)
        raise GateError(
            f"{run.name}: the weights differ between trainings. The first has sha256 {result.first.weights_sha256} on "
            f"{result.first.hostname}, the others have {others}. To use deterministic kernels, set [Train] "
            "deterministic = true."
        )
    sha256 = result.first.weights_sha256
    print(f"{run.name} is bit-identical in each training, weights sha256 {sha256}. Result: {determinism_path(run)}")
    return 0


@contextlib.contextmanager
def _events_of(stage: Stage) -> Iterator[None]:
    """Name a stage in the log, as Luigi does. An error ends the process."""
    stage.trigger_event(luigi.Event.START, stage)
    yield
    stage.trigger_event(luigi.Event.SUCCESS, stage)


def _artifacts(root: Path) -> Iterator[Path]:
    """All folders that are or should be artifacts, including unreadable ones. A folder may occur twice."""
    for kind in _KINDS:
        yield from _named(root / kind, _OF_A_STAGE.fullmatch)
    for folder in _named(root / layout.CHECKPOINTS, _OF_A_STAGE.fullmatch):
        yield from _named(folder, _OF_A_CHECKPOINT.fullmatch)
    report = root / Report.kind
    if report.exists():
        yield report
        with contextlib.suppress(DamagedArtifactError):
            shown = read_manifest(report)["identity"].get("upstream", {}).get("runs", {})
            yield from (root / Train.kind / name for name in sorted(shown))
    for history in histories(dated_reports_folder()):
        yield from _named(history, is_date)


def _named(folder: Path, is_ours: Callable[[str], object]) -> list[Path]:
    """Subfolders with the name of an artifact or a manifest. The folder itself if it is unreadable."""
    if _is_closed(folder):
        return [folder]
    folders = (path for path in layout.artifact_folders(folder) if path.is_dir())
    return [path for path in folders if is_ours(path.name) or os.path.lexists(path / MANIFEST_NAME)]


def _is_closed(folder: Path) -> bool:
    try:
        return folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK, effective_ids=True)
    except PermissionError:
        # A folder above it is closed.
        return True
