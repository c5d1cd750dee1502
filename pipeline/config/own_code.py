"""Functions of one's own as settings: ``my_package.networks:build`` where a name of ours could stand.

Whether there is such a module and whether it binds such a name is found out from its text: importing it may take
seconds, for it imports Keras. What the function makes is looked at when it is called (``pipeline/networks/own.py``).
"""

import re
from collections.abc import Sequence

from pipeline.config.refusal import closest, refuse
from pipeline.installed import find_module, has_name

_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
# It becomes part of a folder's name.
_LONGEST = 100


def is_own(name: str) -> bool:
    """Whether a name in the settings is that of a function of one's own."""
    return ":" in name


def own_modules(*names: str) -> tuple[str, ...]:
    """The modules of those names that are functions of one's own."""
    return tuple(dict.fromkeys(name.partition(":")[0] for name in names if is_own(name)))


def one_of_or_own(section: str, name: str, choices: Sequence[str], got: str, example: str) -> None:
    """Refuse what is neither one of the choices nor a function that can be found, such as ``example``."""
    expected = f"one of {', '.join(choices)}, or a function of your own as in {example}"
    if not isinstance(got, str) or not is_own(got):
        if got not in choices:
            refuse(section, name, expected, got, closest(str(got), choices))
        return
    if not _FUNCTION.fullmatch(got) or len(got) > _LONGEST:
        refuse(section, name, expected, got)
    module, _, function = got.partition(":")
    places = "It is looked for in the working directory, the project's folder and what is installed."
    try:
        if find_module(module) is None:
            refuse(section, name, expected, got, f" There is no module {module}. {places}")
        if not has_name(module, function):
            refuse(section, name, expected, got, f" {module} has no {function}.")
    except (SyntaxError, UnicodeDecodeError) as error:
        refuse(section, name, expected, got, f" {module} is no Python that could be read: {error}.")
