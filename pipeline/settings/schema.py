"""Declares settings, with a dataclass per section of config.ini and an annotated field per setting.

A field reads ``name: Annotated[type, rule, NOT_IN_IDENTITY] = default``, or ``name: type = default`` without rule and
mark. The string below the field is its help text. The checks, Luigi's parameters, config.ini and
docs/reference/settings.md all follow from these.
"""

import ast
import contextlib
import dataclasses
import enum
import inspect
import itertools
import json
import re
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, ClassVar, dataclass_transform, get_args, get_origin, get_type_hints

from pipeline.errors import closest, refuse
from pipeline.optional_packages import find_module, has_name
from pipeline.registry import Registry

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_LONGEST_FUNCTION = 100

# Properties of a setting besides its rule.
NOT_IN_IDENTITY, SECRET = Mark = enum.Enum("Mark", "NOT_IN_IDENTITY SECRET")


@dataclass(frozen=True)
class Rule:
    """The valid values of a setting, described by ``expected``.

    ``problem`` returns None for a valid value. Otherwise it returns a hint for the message, which may be empty.
    ``spelling`` normalizes equivalent values. ``choices`` are words that a shell completes.
    """

    expected: str
    problem: Callable[[Any], str | None]
    spelling: Callable[[Any], Any] = lambda value: value
    choices: tuple[str, ...] = ()


def where(expected: str, is_valid: Callable[[Any], object]) -> Rule:
    """The values that satisfy a condition. Errors of a parser in it become the hint."""

    def problem(value: Any) -> str | None:
        try:
            return None if is_valid(value) else ""
        except (ValueError, re.error) as error:
            return f" {error}."

    return Rule(expected, problem)


def integer(low: int, high: int) -> Rule:
    """An integer between two bounds, both included."""
    return where(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


# Seeds that both tf.random and Beam accept.
SEED = integer(0, 2**31 - 1)


def number(low: float, high: float, brackets: str = "[]", *, other: float | None = None, meaning: str = "") -> Rule:
    """A number between two bounds, or ``other``. A square bracket includes its bound."""
    bounds = {
        "[]": f"from {low:g} to {high:g}",
        "[)": f"from {low:g} up to but not including {high:g}",
        "(]": f"above {low:g} and up to {high:g}",
        "()": f"between {low:g} and {high:g}",
    }
    expected = f"a number {bounds[brackets]}" + ("" if other is None else f", or {other:g} for {meaning}")
    included = {bound for bound, bracket in zip((low, high), brackets, strict=True) if bracket in "[]"} | {other}
    rule = where(expected, lambda value: type(value) in (int, float) and (low < value < high or value in included))
    # JSON distinguishes 1 from 1.0, and so does a fingerprint.
    return replace(rule, spelling=lambda value: float(value) if type(value) is int else value)


def one_of(*choices: str) -> Rule:
    """One of several choices."""
    expected = f"one of {', '.join(choice or 'nothing' for choice in choices)}"
    return Rule(expected, lambda value: None if value in choices else closest(str(value), choices), choices=choices)


AUTO = "auto"


def or_auto(rule: Rule) -> Rule:
    """The values of a rule, or ``auto`` for a value that is chosen when the examples are known."""
    return Rule(
        f"auto, or {rule.expected}",
        lambda value: None if value == AUTO else rule.problem(value),
        lambda value: value if value == AUTO else rule.spelling(value),
        (AUTO, *rule.choices),
    )


def text(expected: str, pattern: str) -> Rule:
    """A text that fully matches a regular expression."""
    return where(expected, lambda value: re.fullmatch(pattern, value))


def is_own(name: str) -> bool:
    """Whether a name in the settings is a function in user code, such as ``my_package.models:build``."""
    return ":" in name


def own_modules(*names: str) -> tuple[str, ...]:
    """The modules of the names that are functions in user code."""
    return tuple(dict.fromkeys(name.partition(":")[0] for name in names if is_own(name)))


def registered(registry: Registry, example: str = "") -> Rule:
    """A name of a registry, or a function in user code such as ``example``, unless that is empty."""

    def problem(name: object) -> str | None:
        if name in registry:
            return None
        if not example or not is_own(str(name)):
            return closest(str(name), [*registry, *registry.unlisted])
        # The name becomes part of a folder's name.
        is_valid = _FUNCTION.fullmatch(name) and len(name) <= _LONGEST_FUNCTION
        return absence(*name.split(":")) if is_valid else ""

    names = one_of(*registry.builtin)
    expected = f"{names.expected}{example and f', or a function in user code such as {example}'}"
    return replace(names, expected=expected, problem=problem)


def absence(module: str, name: str) -> str | None:
    """Return a hint if a name cannot be imported from a module, which is read only, because it may import Keras."""
    try:
        if find_module(module) is None:
            places = "the working directory, the project's folder and what is installed"
            return f" There is no module {module}. It is looked for in {places}."
        return None if has_name(module, name) else f" {module} has no {name}."
    except (SyntaxError, UnicodeDecodeError) as error:
        return f" {module} is no Python that could be read: {error}."


@dataclass(frozen=True)
class Setting:
    """The declaration of a setting. ``type`` is str, int, float or tuple."""

    owner: type["Settings"]
    section: str
    name: str
    type: type
    default: Any
    rule: Rule | None
    marks: frozenset[Mark]

    @property
    def help(self) -> str:
        """The string below the field. It is read from the source, which takes longer than a run with nothing to do."""
        return next(text for base in self.owner.__mro__ if (text := _help_texts(base).get(self.name)))

    @property
    def plain_help(self) -> str:
        """The help text without references to docs/, which an installed package lacks."""
        return re.sub(r"\s*\(docs/[^)]*\)|\s*See\s+docs/\S+\.", "", self.help)

    def summary(self) -> str:
        """The first sentence of the help text, and the valid values."""
        first = re.split(r"(?<=\.)\s", self.plain_help, maxsplit=1)[0]
        return f"{first} Must be {self.rule.expected}." if self.rule else first

    def parse(self, text: str) -> Any:
        """Convert the text of a setting in config.ini or on the command line. SettingsError: the type is wrong."""
        if text == AUTO and self.type is int and self.rule and AUTO in self.rule.choices:
            return text
        try:
            return self._list(text) if self.type is tuple else self.type(text)
        except ValueError:
            kinds = {int: "an integer", float: "a number", tuple: "a list such as cpu,gpu or [256, 512]"}
            refuse(self.section, self.name, kinds[self.type], text)

    def _list(self, text: str) -> tuple:
        """The items of ``cpu,gpu``, ``[cpu, gpu]`` or ``["cpu", "gpu"]``."""
        bracketed = re.fullmatch(r"\s*\[(.*)\]\s*", text, re.DOTALL)
        content = bracketed[1] if bracketed else text
        items = [re.fullmatch(r'\s*(?:"([\w.:+-]+)"|([\w.:+-]+))\s*', item) for item in content.split(",")]
        if content.strip() and not all(items):
            raise ValueError
        return tuple(item[1] or number_or_text(item[2]) for item in items if item)

    def checked(self, value: Any) -> Any:
        """Check and normalize a value. SettingsError: the value is invalid."""
        if self.rule is None or value == self.default == "":
            return value
        for item in value if self.type is tuple else (value,):
            if (hint := self.rule.problem(item)) is not None:
                # An address may contain a password.
                is_secret = Mark.SECRET in self.marks or (self.type is str and "@" in item)
                refuse(self.section, self.name, self.rule.expected, "something else" if is_secret else item, hint)
        return self.spelled(value)

    def spelled(self, value: Any) -> Any:
        """The value in the form that comparisons use."""
        if self.rule is None:
            return value
        return tuple(map(self.rule.spelling, value)) if self.type is tuple else self.rule.spelling(value)

    def written(self, value: Any) -> str:
        """The value as a text for ``parse``."""
        return json.dumps(value) if self.type is tuple else f"{value}"


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """Base of all sections. Each is a frozen dataclass that validates its values on creation."""

    section: ClassVar[str]

    def __init_subclass__(cls, *, section: str) -> None:
        cls.section = section
        dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)):
            object.__setattr__(self, setting.name, setting.checked(getattr(self, setting.name)))
        self.check()

    def check(self) -> None:
        """Refuse invalid combinations of values."""


class StageSettings(Settings, section=""):
    """Settings that every stage has."""

    # At most a year, because operating systems limit the length of an alarm.
    time_limit_seconds: Annotated[int, integer(0, 366 * 24 * 3600), NOT_IN_IDENTITY] = 0
    """Number of seconds after which the stage is stopped with exit code 8. 0 means no limit."""


@cache
def settings_of(owner: type[Settings]) -> tuple[Setting, ...]:
    """The settings of a section in order, inherited settings last."""
    hints = get_type_hints(owner, include_extras=True)
    own = inspect.get_annotations(owner)
    settings = []
    for field in sorted(dataclasses.fields(owner), key=lambda field: field.name not in own):
        kind, *rest = get_args(hints[field.name]) or (hints[field.name],)
        rule = next((one for one in rest if isinstance(one, Rule)), None)
        marks = frozenset(one for one in rest if isinstance(one, Mark))
        # Of ``int | str``, the type before ``auto``.
        kind = get_args(kind)[0] if isinstance(kind, types.UnionType) else get_origin(kind) or kind
        settings.append(Setting(owner, owner.section, field.name, kind, field.default, rule, marks))
    return tuple(settings)


@cache
def _help_texts(owner: type) -> dict[str, str]:
    """Map each setting to the string below its field."""
    (definition,) = ast.parse(inspect.getsource(owner)).body
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def number_or_text(text: str) -> int | float | str:
    """Convert a text to a number if possible."""
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
