"""Declaration of settings: a dataclass per section of config.ini, an annotated field per setting.

A field reads ``name: Annotated[type, rule, NOT_IN_IDENTITY] = default``, or ``name: type = default`` without rule and
mark. The string below the field is its help text. The checks, Luigi's parameters, config.ini and docs/settings.md
all follow from these.
"""

import ast
import contextlib
import dataclasses
import enum
import inspect
import itertools
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from pipeline.config.refusal import closest, refuse

MAX_SEED = 2**31 - 1  # The largest seed that tf.random and Beam take.

_BOUNDS = {
    "[]": "from {low:g} to {high:g}",
    "[)": "from {low:g} up to but not including {high:g}",
    "(]": "above {low:g} and up to {high:g}",
    "()": "between {low:g} and {high:g}",
}


# Properties of a setting besides its rule.
NOT_IN_IDENTITY, SECRET = Mark = enum.Enum("Mark", "NOT_IN_IDENTITY SECRET")


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
    expected = f"an integer from {low} to {high}"
    return Rule(expected, lambda value: None if type(value) is int and low <= value <= high else "")


def number(low: float, high: float, brackets: str = "[]", *, other: float | None = None, meaning: str = "") -> Rule:
    """A number between two bounds, or ``other``. A square bracket includes its bound."""

    def problem(value: Any) -> str | None:
        if type(value) not in (int, float):
            return ""
        is_above = value >= low if brackets[0] == "[" else value > low
        is_below = value <= high if brackets[1] == "]" else value < high
        return None if (is_above and is_below) or value == other else ""

    expected = f"a number {_BOUNDS[brackets].format(low=low, high=high)}"
    # JSON distinguishes 1 from 1.0, and so does a fingerprint.
    as_float = lambda value: float(value) if type(value) is int else value  # noqa: E731
    return Rule(expected if other is None else f"{expected}, or {other:g}, {meaning}", problem, as_float)


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
        """The first sentence of the help text, and the valid values."""
        first = re.split(r"(?<=\.)\s", self.help, maxsplit=1)[0]
        return f"{first} Expected: {self.rule.expected}." if self.rule else first

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
        """The items of ``cpu,gpu``, ``[cpu, gpu]`` or ``["cpu", "gpu"]``."""
        bracketed = re.fullmatch(r"\s*\[(.*)\]\s*", text, re.DOTALL)
        content = bracketed[1] if bracketed else text
        items = [re.fullmatch(r'\s*(?:"([\w.:+-]+)"|([\w.:+-]+))\s*', item) for item in content.split(",")]
        if content.strip() and not all(items):
            refuse(self.section, self.name, f"a list such as '{self.rule.example}'", text)
        return tuple(item[1] or _number_or_text(item[2]) for item in items if item)


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
def section(name: str) -> Callable[[type[_Section]], type[_Section]]:
    """Declare a section of config.ini: a frozen dataclass of ``Settings``."""

    def declare(cls: type[_Section]) -> type[_Section]:
        cls.section = name
        return dataclass(frozen=True, kw_only=True)(cls)

    return declare


@section("")
class StageSettings(Settings):
    """Settings that every stage has."""

    # At most a year. The alarm of an operating system takes no more.
    time_limit_seconds: Annotated[int, integer(0, 366 * 24 * 3600), NOT_IN_IDENTITY] = 0
    """Seconds the stage may take. Then it is stopped with exit code 8. 0 means no limit."""


@cache
def settings_of(owner: type[Settings]) -> tuple[Setting, ...]:
    """The settings of a section in their order. Those that it inherits are last."""
    hints = get_type_hints(owner, include_extras=True)
    texts = {name: text for base in reversed(owner.__mro__[:-1]) for name, text in _help_texts(base).items()}
    own = inspect.get_annotations(owner)
    found = []
    for field in sorted(dataclasses.fields(owner), key=lambda field: field.name not in own):
        hint = hints[field.name]
        kind, *rest = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        rule = next((one for one in rest if isinstance(one, Rule)), None)
        marks = frozenset(one for one in rest if isinstance(one, Mark))
        kind = get_origin(kind) or kind
        found.append(Setting(owner.section, field.name, kind, field.default, texts[field.name], rule, marks))
    return tuple(found)


def _help_texts(owner: type) -> dict[str, str]:
    """Setting → the string below its field."""
    (definition,) = (node for node in _module(owner.__module__).body if getattr(node, "name", "") == owner.__name__)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


# inspect.getsource parses the whole module for each of its classes.
@cache
def _module(name: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[name]))


def _number_or_text(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
