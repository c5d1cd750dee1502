"""The commands ``init``, ``doctor`` and ``completion``, which set up a project, check a machine and help a shell."""

import argparse
import contextlib
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from pipeline.artifacts.publish import free_bytes, require_space
from pipeline.errors import DatasetUnavailableError, PipelineError, SettingsError, StorageError
from pipeline.hardware.placement import choose_backend
from pipeline.hardware.receipt import verdict
from pipeline.optional_packages import DISTRIBUTION, install_command, installed_version
from pipeline.settings import SECTIONS
from pipeline.settings.schema import settings_of
from pipeline.stage_process import in_child
from tasks import config_files, remote_cache
from tasks.commands import COMMANDS, Parser, argument, command, summary
from tasks.data import Records, Source
from tasks.process import lock
from tasks.settings import Storage, root_folder
from tasks.stage import Stage
from tasks.train import Train


def init(parser: Parser, argv: Sequence[str]) -> int:
    """Write config.ini and a Makefile into the working directory."""
    parser.add_argument("--force", action="store_true", help="overwrite files that exist")
    is_forced = parser.parse_args(argv).force
    *defaults, project = config_files.settings_folders()
    if not defaults:
        raise SettingsError(f"init: expected an installed wheel, got the clone {project}. Edit its config.ini.")
    files = {"config.ini": commented((defaults[0] / "config.ini").read_text(encoding="utf-8"))}
    files["Makefile"] = Path(__file__).with_name("init.mk").read_text(encoding="utf-8")
    for name, content in files.items():
        try:
            with (project / name).open("w" if is_forced else "x", encoding="utf-8") as file:
                file.write(content)
            print(f"Wrote {name}.")
        except FileExistsError:
            print(f"Kept the existing {name}. Pass --force to overwrite it.")
        except OSError as error:
            raise StorageError(f"{project / name}: cannot be written ({error.strerror}).") from error
    print("Put your images into a folder per label, such as flowers/daisy/. Next, run: tensorcraft run flowers")
    return 0


def commented(defaults: str) -> str:
    """The default settings as comments, so that those of a later version apply to all that the user leaves alone."""
    settings = re.sub(r"^(?=\w+ =)", "#", re.sub(r".* make config .*\n\n", "", defaults), flags=re.MULTILINE)
    return f"# Remove the # before a setting to change it.\n\n{settings}"


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


def completion(parser: Parser, argv: Sequence[str]) -> int:
    """Print a script that completes commands and flags in bash, zsh or fish."""
    help = 'the shell, which reads it with: eval "$(tensorcraft completion bash)"'
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help=help)
    shell = parser.parse_args(argv).shell
    import shtab

    whole = argparse.ArgumentParser("tensorcraft")
    commands = whole.add_subparsers()
    for name in COMMANDS:
        function = COMMANDS.load(name)
        commands.add_parser(name, help=summary(function), parents=[_Flags(name, function)], add_help=False)
    print(shtab.complete(whole, shell))
    return 0


class _Flags(Parser):
    """The arguments of a command, and the settings if it takes them."""

    def __init__(self, name: str, command: Callable[[Parser, Sequence[str]], int]) -> None:
        # Imported here, so that doctor can name this package if it is absent.
        import shtab

        super().__init__(name, "")
        # The command parses its arguments when it has declared them.
        with contextlib.suppress(StopIteration):
            command(self, [])
        experiment = next(action for action in self._actions if config_files.EXPERIMENT_FLAG in action.option_strings)
        experiment.choices = [*config_files.experiments()]
        for action in self._actions:
            if action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE

    def parse_args(self, *_: object) -> None:
        raise StopIteration

    def parse_known_args(self, *_: object) -> None:
        for section in SECTIONS:
            for setting in settings_of(section):
                choices = setting.rule and setting.rule.choices
                self.add_argument(
                    f"--{section.section}-{setting.name.replace('_', '-')}",
                    choices=[*filter(None, choices)] if choices else None,
                    help=setting.summary().partition(" Must be ")[0].replace("%", "%%"),
                )
        raise StopIteration
