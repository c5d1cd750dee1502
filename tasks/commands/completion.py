"""The command ``completion``, which prints a completion script for a shell. Completion does not start Python."""

import argparse
import contextlib
from collections.abc import Callable, Sequence

import shtab

from pipeline.settings.reference import SECTIONS
from pipeline.settings.schema import settings_of
from tasks import config_files
from tasks.commands import COMMANDS, summary
from tasks.commands.command import Parser

_SHELLS = ("bash", "zsh", "fish")


def completion(parser: Parser, argv: Sequence[str]) -> int:
    """Print a script that completes commands and flags in bash, zsh or fish."""
    parser.add_argument(
        "shell", choices=_SHELLS, help='the shell, which reads it with: eval "$(tensorcraft completion bash)"'
    )
    shell = parser.parse_args(argv).shell
    whole = argparse.ArgumentParser("tensorcraft")
    commands = whole.add_subparsers()
    for name in COMMANDS:
        function = COMMANDS.load(name)
        commands.add_parser(name, help=summary(function), parents=[_Flags(name, function)], add_help=False)
    print(shtab.complete(whole, shell))
    return 0


class _Declared(Exception):
    """A command has declared its arguments."""


class _Flags(Parser):
    """The arguments of a command, and the settings if it takes them."""

    def __init__(self, name: str, command: Callable[[Parser, Sequence[str]], int]) -> None:
        super().__init__(name, "")
        with contextlib.suppress(_Declared):
            command(self, [])
        experiment = next(action for action in self._actions if config_files.EXPERIMENT_FLAG in action.option_strings)
        experiment.choices = [*config_files.experiments()]
        for action in self._actions:
            if action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE

    def parse_args(self, *_: object) -> None:
        raise _Declared

    def parse_known_args(self, *_: object) -> None:
        for section in SECTIONS:
            for setting in settings_of(section):
                choices = setting.rule and setting.rule.choices
                self.add_argument(
                    f"--{section.section}-{setting.name.replace('_', '-')}",
                    choices=[*filter(None, choices)] if choices else None,
                    help=setting.summary().partition(" Must be ")[0].replace("%", "%%"),
                )
        raise _Declared
