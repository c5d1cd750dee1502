"""The command ``doctor``, which checks this machine and writes its hardware receipt without training."""

import argparse
import json
from collections.abc import Sequence
from functools import partial
from importlib import metadata

from packaging.requirements import Requirement

from pipeline.artifacts.publish import free_bytes, require_space
from pipeline.errors import DatasetUnavailableError, PipelineError, SettingsError
from pipeline.hardware.backend import choose_backend
from pipeline.hardware.receipt import verdict
from pipeline.optional_packages import DISTRIBUTION, install_command, installed_version
from pipeline.stage_process import in_child
from tasks import remote_cache
from tasks.commands.command import argument, command
from tasks.process import lock
from tasks.records import Records
from tasks.settings import Storage, root_folder
from tasks.source import Source
from tasks.stage import Stage
from tasks.train import Train


@command(argument("--json", action="store_true", help="print a JSON object"))
def doctor(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Check the packages, storage, dataset and hardware of this machine before a run."""
    receipt: dict = {}
    checks = {"packages": check_packages, "storage": partial(check_storage, stages)}
    if Storage().remote:
        checks["remote"] = check_remote
    checks |= {"dataset": check_dataset, "runner": check_runner}
    # A sweep may request several devices.
    trains = {train.device: train for train in stages if isinstance(train, Train)}
    checks |= {f"device {name}": partial(check_device, train, receipt) for name, train in trains.items()}
    results = {}
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
    backend = choose_backend(train.settings)
    how = {"backend": backend, "cpu_devices": train.replicas}
    result = in_child("pipeline.hardware.receipt:examine", {"settings": train.settings}, **how)
    receipt |= result["receipt"]
    device = f"{receipt['effective_device']} ({receipt['device_name']})"
    return f"{device}, device {verdict(receipt)}, requested {train.device}, {result['precision']}"
