"""From config.ini and the command line to settings: what Luigi only warns about is refused here."""

import json
import re
import sys
from functools import cache
from pathlib import Path

import luigi
import luigi.interface
import luigi.notifications
import luigi.retcodes
from luigi.configuration import get_config
from luigi.task_register import Register

from pipeline.config.augment import spelled
from pipeline.config.refusal import closest, refuse
from pipeline.errors import SettingsError
from tasks import experiment
from tasks.process import command_line, console

# As JSON writes it.
_NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"


class _Named:
    """A parameter that names itself when its value is refused."""

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self._section = owner.__name__

    def _refuse(self, expected: str, got: str) -> None:
        # As the parameter of the root task this is the first that happens: nothing else has set up the console.
        console.configure()
        refuse(self._section, self._attribute_name, expected, got)


class IntSetting(_Named, luigi.IntParameter):
    """An integer."""

    def parse(self, s: str) -> int:
        """The integer that ``s`` spells.

        Raises:
            SettingsError: it spells none.
        """
        try:
            return super().parse(s)
        except ValueError:
            self._refuse("an integer", s)


class FloatSetting(_Named, luigi.FloatParameter):
    """A number."""

    def parse(self, s: str) -> float:
        """The number that ``s`` spells.

        Raises:
            SettingsError: it spells none.
        """
        try:
            return super().parse(s)
        except ValueError:
            self._refuse("a number", s)


class AugmentSetting(luigi.Parameter):
    """The operations of [Train] augment: however they are spelled, a run of the same ones is the same run."""

    def normalize(self, x: str) -> str:
        """The one spelling.

        Raises:
            SettingsError: it names what is no operation.
        """
        return spelled(x)


class ListSetting(_Named, luigi.ListParameter):
    """A list as JSON or people write it; Luigi takes any JSON and turns the letters of a bare word into a list."""

    def __init__(self, example: str, **kwargs: object) -> None:
        super().__init__(default=(), **kwargs)
        self._example = example

    def parse(self, x: str) -> tuple:
        """The list that ``x`` spells.

        Raises:
            SettingsError: it spells none.
        """
        try:
            values = json.loads(x)
        # RecursionError: brackets nested without end.
        except (ValueError, RecursionError):
            values = _listed(x)
        values = [values] if isinstance(values, int | float) else values
        if not isinstance(values, list):
            self._refuse(f"a list such as '{self._example}'", x)
        return self.normalize(values)


def _listed(text: str) -> list | None:
    """The items of a list as people write it, ``cpu,gpu`` or ``[cpu, gpu]``; None where it is none."""
    content = text.strip()
    if content[:1] == "[" and content[-1:] == "]":
        content = content[1:-1]
    items = [item.strip() for item in content.split(",")]
    if not all(re.fullmatch(r"[\w.:+-]+", item) for item in items):
        return None
    return [json.loads(item) if re.fullmatch(_NUMBER, item) else item for item in items]


def time_limit_setting() -> IntSetting:
    """Every stage's own; it changes no byte."""
    return IntSetting(default=0, significant=False, description="Seconds the stage may take; 0: no limit.")


@cache
def check_config_file() -> None:
    """Refuse sections and settings that nothing reads: a misspelt one would silently leave its default in force.

    Raises:
        SettingsError: the experiment is not there; or names the first unknown section or setting, and the nearest.
    """
    experiment.check()
    # Luigi's own command has parsed its command line by now, the beginning of a flag for the whole.
    if Path(sys.argv[0]).stem == "luigi":
        command_line.check(sys.argv[1:])
    known = _known_settings()
    parser = get_config()
    for section in parser.sections():
        if section not in known:
            raise SettingsError(f"config: no task or tool reads section [{section}].{closest(section, [*known])}")
        for name in parser[section]:
            if name.replace("-", "_") not in known[section]:
                hint = closest(name, [*known[section]])
                raise SettingsError(f"config: [{section}] has no setting {name!r}.{hint}")


def _known_settings() -> dict[str, set[str]]:
    """Section → settings, of our tasks and of Luigi's own sections, which the imports above register."""
    known: dict[str, set[str]] = {}
    for section, _, name, _ in Register.get_all_params():
        known.setdefault(section, set()).add(name)
    # Read by Luigi without being declared as a parameter.
    known["core"] |= {"no_configure_logging", "autoload_range", "rpc_retry_attempts", "rpc_retry_wait"}
    known["resources"] = {"accelerator"}
    return known
