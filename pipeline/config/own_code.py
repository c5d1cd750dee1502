"""User code as a setting: ``my_package.networks:build`` in place of a name of ours.

A module is read as text, because importing it may import Keras. ``pipeline/networks/own.py`` imports the function.
"""

import re

from pipeline.config.refusal import closest
from pipeline.config.schema import Rule, one_of
from pipeline.installed import find_module, has_name
from pipeline.registry import Registry

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
# It becomes part of a folder's name.
_LONGEST = 100


def is_own(name: str) -> bool:
    """Whether a name in the settings is a function of the user."""
    return ":" in name


def own_modules(*names: str) -> tuple[str, ...]:
    """The modules of those names that are functions of the user."""
    return tuple(dict.fromkeys(name.partition(":")[0] for name in names if is_own(name)))


def one_of_or_own(registry: Registry, example: str) -> Rule:
    """A name of a registry, or a function of the user such as ``example``."""

    def problem(name: object) -> str | None:
        if is_own(str(name)):
            return _function_problem(name)
        return None if name in registry else closest(str(name), [*registry])

    return Rule(f"{one_of(*registry.builtin).expected}, or a function of your own as in {example}", problem)


def _function_problem(name: str) -> str | None:
    if not _FUNCTION.fullmatch(name) or len(name) > _LONGEST:
        return ""
    module, _, function = name.partition(":")
    try:
        if find_module(module) is None:
            places = "the working directory, the project's folder and what is installed"
            return f" There is no module {module}. It is looked for in {places}."
        return None if has_name(module, function) else f" {module} has no {function}."
    except (SyntaxError, UnicodeDecodeError) as error:
        return f" {module} is no Python that could be read: {error}."
