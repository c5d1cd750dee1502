"""The space of a search, which is a range or a list of values per setting of [Train] (docs/how-to/search.md)."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.errors import SettingsError, closest
from pipeline.settings.schema import AUTO, Mark, Setting, settings_of
from pipeline.settings.training import TrainSettings

# No augmentation. Luigi ignores a flag with an empty value, and auto means none.
_NONE = ("augment", "none")
# Of a sampled number, so that people can read it.
_DIGITS = 4
_LIST = r"""\[((?:'[^']*'|"[^"]*"|[^\]'"])*)\]"""
_ITEM = re.compile(rf"\s*(\w+)\s*=\s*(?:{_LIST}|(log:)?([^,:\s\[\]]+):([^,:\s\[\]]+))\s*(?:,|$)")
_CHOICE = re.compile(r"""\s*(?:'([^']+)'|"([^"]+)"|([^,'"\s](?:[^,'"]*[^,'"\s])?))\s*(?:,|$)""")
# Without the seed, because a search repeats the best settings with other seeds.
_SETTINGS = {
    one.name: one for one in settings_of(TrainSettings) if one.name != "seed" and Mark.NOT_IN_IDENTITY not in one.marks
}


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both included. They are integers if the setting is."""

    low: float
    high: float
    is_log: bool = False

    def rounded(self, value: float) -> float:
        """Round a sampled number."""
        return value if isinstance(value, int) else min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


Space = Mapping[str, Range | tuple[Any, ...]]


def parse_space(text: str) -> Space:
    """Parse a space such as ``learning_rate=log:1e-4:1e-2, augment=[none, flip, 'flip, crop:8']``.

    SettingsError: the text is no space, a setting is unknown, or a setting refuses a value.
    """
    space, position = {}, 0
    while position < len(text) or not space:
        item = _ITEM.match(text, position)
        if item is None:
            expected = "name=LOW:HIGH, name=log:LOW:HIGH or name=[value, value]"
            raise SettingsError(f"--space: expected {expected}, got {text[position:].strip()!r}.")
        name, position = item[1], item.end()
        if name not in _SETTINGS or name in space:
            expected = "each setting once" if name in space else "settings of [Train] that change the model"
            raise SettingsError(f"--space: expected {expected}, got {name!r}.{closest(name, [*_SETTINGS])}")
        setting = _SETTINGS[name]
        space[name] = _range(setting, *item.group(3, 4, 5)) if item[2] is None else _choices(setting, item[2])
    return dict(sorted(space.items()))


def train_settings(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values of a space to values of [Train]."""
    return {name: AUTO if (name, value) == _NONE else value for name, value in chosen.items()}


def _choices(setting: Setting, text: str) -> tuple[Any, ...]:
    values, position = [], 0
    while position < len(text) or not values:
        choice = _CHOICE.match(text, position)
        if choice is None:
            raise SettingsError(f"--space: expected values of {setting.name} between commas, got [{text}].")
        word, position = next(filter(None, choice.groups())), choice.end()
        values.append(word if (setting.name, word) == _NONE else _value(setting, word))
    return tuple(dict.fromkeys(values))


def _range(setting: Setting, log: str | None, *bounds: str) -> Range:
    low, high = (_value(setting, bound) for bound in bounds)
    if {type(low), type(high)} & {str} or low >= high or (log and low <= 0):
        expected = f"a lower {'positive number ' * bool(log)}and a higher number"
        raise SettingsError(f"--space: expected {expected} for {setting.name}, got {':'.join(bounds)}.")
    # A bound such as -1 may have a meaning of its own.
    if isinstance(low, float):
        _value(setting, f"{math.nextafter(low, high)}")
    return Range(low, high, bool(log))


def _value(setting: Setting, text: str) -> Any:
    try:
        return setting.checked(setting.parse(text))
    except SettingsError as error:
        # The remedy names the flag of the setting.
        raise SettingsError(f"--space: {error.args[0]}") from error
