"""The commands ``init``, which writes the files of a new project, and ``completion`` for the flags in a shell."""

import argparse
import contextlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import shtab

from pipeline.errors import SettingsError, StorageError
from pipeline.settings.schema import settings_of
from pipeline.settings.sections import SECTIONS
from tasks import config_files
from tasks.commands import COMMANDS, summary
from tasks.commands.command import Parser


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


def completion(parser: Parser, argv: Sequence[str]) -> int:
    """Print a script that completes commands and flags in bash, zsh or fish."""
    help = 'the shell, which reads it with: eval "$(tensorcraft completion bash)"'
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help=help)
    shell = parser.parse_args(argv).shell
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
