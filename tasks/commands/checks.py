"""The commands ``doctor``, ``verify`` and ``verify-determinism``, which check a machine, artifacts and a run."""

import argparse
import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

import luigi
from packaging.requirements import Requirement

from pipeline import machine
from pipeline.artifacts import layout
from pipeline.artifacts.manifest import MANIFEST_NAME, read_manifest
from pipeline.artifacts.publish import free_bytes, require_space, temporary_folder
from pipeline.errors import (
    DamagedArtifactError,
    DatasetUnavailableError,
    GateError,
    PipelineError,
    SettingsError,
    UnreadableArtifactError,
)
from pipeline.hardware.backend import choose_backend
from pipeline.hardware.receipt import verdict
from pipeline.optional_packages import DISTRIBUTION, install_command, installed_version
from pipeline.settings.setting_error import refuse
from pipeline.stage_process import in_child
from tasks import remote_cache
from tasks.commands.command import argument, command
from tasks.data import Records, Source
from tasks.process import lock
from tasks.process.interrupt import time_limit
from tasks.report import Report, dated_reports_folder, histories
from tasks.settings import Storage, root_folder
from tasks.stage import Stage
from tasks.train import Train

# Names of artifacts, checkpoints and dated reports. A folder of such a name without a manifest is damaged.
_OURS = re.compile(r".+-[0-9a-f]{12}|epoch-\d+|\d{4}-\d\d-\d\d")


@command(argument("--json", action="store_true", help="print a JSON object"))
def doctor(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Check the packages, storage, dataset and hardware of this machine before a run."""
    receipt, results = {}, {}
    # A sweep may request several devices.
    trains = {train.device: train for train in stages if isinstance(train, Train)}
    checks = {
        "packages": check_packages,
        "storage": partial(check_storage, stages),
        **({"remote": check_remote} if Storage().remote else {}),
        "dataset": check_dataset,
        "runner": check_runner,
        **{f"device {name}": partial(check_device, train, receipt) for name, train in trains.items()},
    }
    for name, check in checks.items():
        try:
            results[name] = 0, check()
        except PipelineError as error:
            results[name] = error.exit_code, f"{type(error).__name__}: {error}"
    if arguments.json:
        answers = {name: {"ok": code == 0, "says": text} for name, (code, text) in results.items()}
        print(json.dumps({"checks": answers, "receipt": receipt}, indent=1))
    else:
        for name, (code, text) in results.items():
            print(f"{'ok' if code == 0 else 'FAILED':6} {name:12} {text}")
        if receipt:
            print(f"\nHardware receipt\n{json.dumps(receipt, indent=1)}")
    return next((code for code, _ in results.values() if code), 0)


def check_packages() -> str:
    """Check the version of each installed package."""
    wrong = []
    for requirement in map(Requirement, metadata.requires(DISTRIBUTION)):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            version = installed_version(requirement.name)
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                wrong.append(f"{requirement} is required, but {version or 'no version'} is installed")
    if wrong:
        raise SettingsError(f'{". ".join(wrong)}. To install them, run "{install_command()}".')
    versions = f"TensorFlow {installed_version('tensorflow')}, Keras {installed_version('keras')}"
    return f"all packages have the required versions, {versions}"


def check_storage(stages: Sequence[Stage]) -> str:
    """Check that the root can be written, is not in use, and has the free disk space."""
    root = root_folder()
    lock.hold(root, on_busy=Storage().on_busy)
    # The size of the records depends on the source.
    needed = sum(stage.bytes_needed() for stage in stages if stage.is_resolved())
    require_space(root, needed)
    return f"{root} is writable, {free_bytes(root) / 1e9:.1f} GB free, required: at least {needed / 1e9:.2f} GB"


def check_remote() -> str:
    """Check that the remote answers, and that its conditional writes work."""
    remote = remote_cache.required().remote
    remote.objects.try_out()
    return f"{remote.url} is readable and writable"


def check_dataset() -> str:
    """Check that the dataset is prepared, can be downloaded, or may be a placeholder."""
    try:
        return in_child("pipeline.sources:availability", {"settings": Source().settings})
    except DatasetUnavailableError as error:
        raise DatasetUnavailableError(f"{Source().dataset} is unavailable. {error}") from error


def check_runner() -> str:
    """Check Beam's runner, and whether the workers of a cluster could write the records."""
    job = {"settings": Records().settings, "root": root_folder(), "store": Records().store()}
    return in_child("pipeline.shards.engine:try_engine", job)


def check_device(train: Train, receipt: dict) -> str:
    """Check that the device is available and verified, and fill ``receipt``."""
    job, backend = {"settings": train.settings}, choose_backend(train.settings)
    result = in_child("pipeline.hardware.receipt:examine", job, backend=backend, cpu_devices=train.replicas)
    receipt |= result["receipt"]
    device = f"{receipt['effective_device']} ({receipt['device_name']})"
    return f"{device}, device {verdict(receipt)}, requested {train.device}, {result['precision']}"


@command()
def verify(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Read every artifact under the storage root, and compare it with its checksums."""
    root = root_folder()
    folders = dict.fromkeys(_artifacts(root))
    if not folders:
        # A wrong root must not count as valid.
        raise SettingsError(f"{root}: expected artifacts, found none. Pass the storage root with --Storage-root.")
    states, read_bytes = [], 0
    for folder in folders:
        state, details = "valid", folder
        try:
            # People may keep files of their own in the report's folder.
            in_child("pipeline.runs.verify:verify_artifact", {"folder": folder})
            read_bytes += sum(entry["bytes"] for entry in read_manifest(folder)["files"])
        except DamagedArtifactError as error:
            state, details = "unreadable" if isinstance(error, UnreadableArtifactError) else "damaged", error
        states.append(state)
        print(f"{state:8} {details}")
    valid, damaged, closed = map(states.count, ("valid", "damaged", "unreadable"))
    counts = f"{valid} valid, {damaged} damaged, {closed} unreadable, {read_bytes:,} bytes read"
    print(f"{len(states)} artifacts in {root}, {counts}")
    return DamagedArtifactError.exit_code if damaged else UnreadableArtifactError.exit_code if closed else 0


@command()
def verify_determinism(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Retrain the run and compare the weights bit by bit."""
    from pipeline.runs.determinism import check_machine, compare, determinism_path, read_determinism

    train, before = Train(), None
    if train.processes > 1:
        refuse("Train", "processes", "1 for verify-determinism", train.processes)
    lock.hold(root_folder(), on_busy=Storage().on_busy)
    if not (status := train.status()).is_fresh:
        raise SettingsError(f'Train: expected a finished run, got one that is {status}. Run "tensorcraft run" first.')
    run = train.output().folder
    check_machine(run, machine.describe())
    train.fetch_inputs()
    # The log names the stage.
    train.trigger_event(luigi.Event.START, train)
    with (
        temporary_folder(determinism_path(run), train.bytes_needed()) as scratch,
        time_limit(train.task_family, train.time_limit_seconds),
    ):
        again = scratch / "run"
        again.mkdir()
        train.train_into(again, scratch / "checkpoints")
        # A damaged result is replaced.
        with contextlib.suppress(DamagedArtifactError):
            before = read_determinism(run)
        result = compare(run, again, before)
    train.trigger_event(luigi.Event.SUCCESS, train)
    if not result.is_identical:
        weights = ", ".join(f"{one.weights_sha256} on {one.hostname}" for one in (result.first, *result.again))
        raise GateError(
            f"{run.name}: the weights differ between trainings, with sha256 {weights}. To use deterministic kernels, "
            "set [Train] deterministic = true."
        )
    sha256 = result.first.weights_sha256
    print(f"{run.name} is bit-identical in each training, weights sha256 {sha256}. Result: {determinism_path(run)}")
    return 0


def _artifacts(root: Path) -> Iterator[Path]:
    """All folders that are or should be artifacts, including unreadable ones. A folder may occur twice."""
    for kind in (*layout.KINDS, *layout.PAST_KINDS):
        yield from _named(root / kind)
    for folder in _named(root / layout.CHECKPOINTS):
        yield from _named(folder)
    report = root / Report.kind
    if report.exists():
        yield report
        with contextlib.suppress(DamagedArtifactError):
            shown = read_manifest(report)["identity"].get("upstream", {}).get("runs", {})
            yield from (root / Train.kind / name for name in sorted(shown))
    for history in histories(dated_reports_folder()):
        yield from _named(history)


def _named(folder: Path) -> list[Path]:
    """Subfolders with the name of an artifact or a manifest. The folder itself if it is unreadable."""
    if os.path.isdir(folder) and not os.access(folder, os.R_OK | os.X_OK, effective_ids=True):
        return [folder]
    folders = (path for path in layout.artifact_folders(folder) if path.is_dir())
    return [path for path in folders if _OURS.fullmatch(path.name) or os.path.lexists(path / MANIFEST_NAME)]
