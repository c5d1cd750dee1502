"""Declaration of settings: a dataclass per section of config.ini, an annotated field per setting.

A field reads ``Annotated[type, rule, "Help text.", NOT_IN_IDENTITY] = default``. The rule and the mark are optional.
The checks, Luigi's parameters, config.ini and docs/settings.md all follow from it.
"""

import dataclasses
import enum
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from pipeline.config.refusal import closest, refuse

MAX_SEED = 2**31 - 1  # The largest seed that tf.random and Beam take.

# A number as JSON writes it.
_NUMBER = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
_BOUNDS = {
    "[]": "from {low:g} to {high:g}",
    "[)": "from {low:g} up to but not including {high:g}",
    "(]": "above {low:g} and up to {high:g}",
    "()": "between {low:g} and {high:g}",
}


class Mark(enum.Enum):
    """A property of a setting besides its rule."""

    NOT_IN_IDENTITY = enum.auto()
    SECRET = enum.auto()


NOT_IN_IDENTITY, SECRET = Mark


@dataclass(frozen=True)
class Rule:
    """The values that a setting takes.

    Attributes:
        expected: the valid values, for a message.
        problem: returns None if a value is valid, else a hint for the message, which may be empty.
        spelling: brings values of one meaning to one form.
        example: a list of valid values, if the setting takes a list.
    """

    expected: str
    problem: Callable[[Any], str | None]
    spelling: Callable[[Any], Any] = lambda value: value
    example: str = "[]"


def integer(low: int, high: int) -> Rule:
    """An integer between two bounds, both included."""
    # A JSON list may contain true, which is an int to isinstance.
    is_valid = lambda value: type(value) is int and low <= value <= high  # noqa: E731
    return Rule(f"an integer from {low} to {high}", lambda value: None if is_valid(value) else "")


def number(low: float, high: float, brackets: str = "[]", *, other: float | None = None, meaning: str = "") -> Rule:
    """A number between two bounds, or ``other``. A square bracket includes its bound."""

    def problem(value: Any) -> str | None:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return ""
        is_above = value >= low if brackets[0] == "[" else value > low
        is_below = value <= high if brackets[1] == "]" else value < high
        return None if (is_above and is_below) or value == other else ""

    expected = f"a number {_BOUNDS[brackets].format(low=low, high=high)}"
    return Rule(expected if other is None else f"{expected}, or {other:g}, {meaning}", problem, _as_float)


def _as_float(value: Any) -> Any:
    # JSON distinguishes 1 from 1.0, and so does a fingerprint.
    return float(value) if type(value) is int else value


def one_of(*choices: str) -> Rule:
    """One of several words."""
    expected = f"one of {', '.join(choice or 'nothing' for choice in choices)}"
    return Rule(expected, lambda value: None if value in choices else closest(str(value), choices))


def text(expected: str, pattern: str) -> Rule:
    """A text that matches a regular expression as a whole."""
    return Rule(expected, lambda value: None if re.fullmatch(pattern, value) else "")


@dataclass(frozen=True)
class Setting:
    """One setting, as its field declares it. ``type`` is str, int, float or tuple."""

    section: str
    name: str
    type: type
    default: Any
    help: str
    rule: Rule | None
    marks: frozenset[Mark]

    def summary(self) -> str:
        """The first sentence of the help text."""
        return re.split(r"(?<=\.)\s", self.help, maxsplit=1)[0]

    def parse(self, text: str) -> Any:
        """The value that a text in config.ini or on the command line stands for.

        Raises:
            SettingsError: it is of another type.
        """
        if self.type is tuple:
            return self._parse_list(text)
        try:
            return self.type(text)
        except ValueError:
            refuse(self.section, self.name, "an integer" if self.type is int else "a number", text)

    def checked(self, value: Any) -> Any:
        """The value in its one form.

        Raises:
            SettingsError: the rule refuses it.
        """
        if self.rule is None or value == self.default == "":
            return value
        for item in value if self.type is tuple else (value,):
            if (hint := self.rule.problem(item)) is not None:
                # An address may contain a password.
                is_secret = Mark.SECRET in self.marks or (self.type is str and "@" in item)
                refuse(self.section, self.name, self.rule.expected, "something else" if is_secret else item, hint)
        return self.spelled(value)

    def spelled(self, value: Any) -> Any:
        """The value in the form in which it is compared with others."""
        if self.rule is None:
            return value
        return tuple(map(self.rule.spelling, value)) if self.type is tuple else self.rule.spelling(value)

    def written(self, value: Any) -> str:
        """A value as a text that ``parse`` takes."""
        return json.dumps(value) if self.type is tuple else f"{value}"

    def _parse_list(self, text: str) -> tuple:
        try:
            values = json.loads(text)
        # RecursionError: too many nested brackets.
        except (ValueError, RecursionError):
            values = _listed(text)
        values = [values] if isinstance(values, int | float) else values
        if not isinstance(values, list):
            refuse(self.section, self.name, f"a list such as '{self.rule.example}'", text)
        return tuple(values)


class Settings:
    """Base of all sections. Making one validates it."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)):
            object.__setattr__(self, setting.name, setting.checked(getattr(self, setting.name)))
        self.check()

    def check(self) -> None:
        """Refuse values that are valid alone but not together."""


_Section = TypeVar("_Section", bound=Settings)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def config_section(name: str) -> Callable[[type[_Section]], type[_Section]]:
    """Declare a section of config.ini: a frozen dataclass of ``Settings``."""

    def declare(cls: type[_Section]) -> type[_Section]:
        cls.section = name
        return dataclass(frozen=True, kw_only=True)(cls)

    return declare


@cache
def settings_of(section: type[Settings]) -> tuple[Setting, ...]:
    """The settings of a section in their order. Those that it inherits are last."""
    hints = get_type_hints(section, include_extras=True)
    own = inspect.get_annotations(section)
    fields = sorted(dataclasses.fields(section), key=lambda field: field.name not in own)
    return tuple(_setting(section.section, field, hints[field.name]) for field in fields)


def _setting(section: str, field: dataclasses.Field, annotation: Any) -> Setting:
    kind, *rest = get_args(annotation)
    return Setting(
        section=section,
        name=field.name,
        type=get_origin(kind) or kind,
        default=field.default,
        help=inspect.cleandoc(next(one for one in rest if isinstance(one, str))),
        rule=next((one for one in rest if isinstance(one, Rule)), None),
        marks=frozenset(one for one in rest if isinstance(one, Mark)),
    )


def _listed(text: str) -> list | None:
    """The items of ``cpu,gpu`` or ``[cpu, gpu]``. None if the text is no such list."""
    content = text.strip()
    if content[:1] == "[" and content[-1:] == "]":
        content = content[1:-1]
    items = [item.strip() for item in content.split(",")]
    if not all(re.fullmatch(r"[\w.:+-]+", item) for item in items):
        return None
    return [json.loads(item) if re.fullmatch(_NUMBER, item) else item for item in items]
