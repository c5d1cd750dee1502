"""Settings on the command line, such as ``--Train-epochs 1``.

Luigi's own parser accepts abbreviated flags. For an unknown flag it prints the usage of all settings, and for an
invalid value a traceback. ``check`` refuses all three with one line.
"""

import contextlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Sequence

import luigi.interface
from luigi.cmdline_parser import CmdlineParser
from luigi.task_register import Register

from pipeline.errors import PipelineError, SchedulerUnavailableError, SettingsError, closest
from pipeline.settings import SECTIONS
from tasks.process.console import SCHEDULER_REMEDY

_TASKS = ("Source", "Records", "Train", "Report", "Nightly", "Export")
# Per address of the scheduler's name.
_TIMEOUT_SECONDS = 4


@contextlib.contextmanager
def in_force(argv: Sequence[str], others: Collection[str] = ()) -> Iterator[CmdlineParser]:
    """Apply the settings of a command line that starts with ``--module``. Raises the errors of ``check``."""
    check(argv, others)
    with CmdlineParser.global_instance(list(argv)) as parser:
        yield parser


def require_scheduler() -> None:
    """Raise a SchedulerUnavailableError if a central scheduler does not answer. Luigi would wait minutes for it."""
    settings = luigi.interface.core()
    url = settings.scheduler_url or f"http://{settings.scheduler_host}:{settings.scheduler_port}"
    # A local scheduler is inside the process.
    if settings.local_scheduler or url.startswith("http+unix:"):
        return
    import requests

    try:
        answer = requests.get(f"{url.rstrip('/')}/api/is_paused", params={"data": "{}"}, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        answer.json()["response"]
    except (requests.RequestException, ValueError, LookupError, TypeError) as error:
        raise SchedulerUnavailableError(
            f"{url}: Luigi's central scheduler does not respond ({type(error).__name__}). {SCHEDULER_REMEDY}"
        ) from error


def check(argv: Sequence[str], others: Collection[str] = ()) -> None:
    """Raise a SettingsError for unknown flags and tasks, positional words, and missing or invalid values.

    The error may propose ``others``, which are flags of a command.
    """
    (words, flags), more = words_and_flags(argv), "--help-all lists all flags."
    if words[1:]:
        raise SettingsError(f"command line: expected a flag such as --Train-epochs before {words[1]!r}. {more}")
    if words and words[0] not in Register.task_names():
        hint = closest(words[0], _TASKS)
        raise SettingsError(f"command line: expected a task of {', '.join(_TASKS)}, got {words[0]!r}.{hint}")
    known = _known_flags(words[0] if words else "")
    for flag, value in flags.items():
        if flag not in known:
            # Luigi adds flags of its own.
            settings = [each for each in known if _section(each) in {each.section for each in SECTIONS}]
            near = [each for each in settings if _section(each) == _section(flag)]
            hint = closest(flag, near, _name) or closest(flag, [*settings, *others], _name)
            raise SettingsError(f"command line: unrecognized argument {flag}.{hint} {more}")
        if value is None and not isinstance(known[flag], luigi.BoolParameter):
            raise SettingsError(f"command line: expected a value for {flag}, got none. {more}")
        try:
            if value is not None:
                known[flag].parse(value)
        except PipelineError:
            raise
        # Luigi's parameters raise various exceptions.
        except Exception as error:
            raise SettingsError(f"command line: invalid value {value!r} for {flag} ({error}).") from error


def child_command(*argv: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of ``python -m tasks``, even if the working directory contains a tasks.py."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    return [sys.executable, "-P", "-m", "tasks", *argv], environment


def words_and_flags(argv: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """Positional words, and the value of each flag. The value is None for switches and flags without a value."""
    switches = {flag for flag, parameter in _known_flags("").items() if isinstance(parameter, luigi.BoolParameter)}
    words, flags, waiting = [], {}, ""
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            flags[name], waiting = (value, "") if equals else (None, "" if name in switches else name)
        # argparse takes other words with a dash for flags.
        elif waiting and not re.match(r"-[^\d.]", word):
            flags[waiting], waiting = word, ""
        else:
            words.append(word)
    return words, flags


def _section(flag: str) -> str:
    return flag.split("-")[2]


def _name(flag: str) -> str:
    """The name of a setting without its section, which would make any two flags of a section similar."""
    return re.sub(r"--([A-Z]\w*-)?", "", flag)


def _known_flags(task: str) -> dict[str, luigi.Parameter]:
    """Flags of section and setting. The flags of the requested task may omit the section."""
    known = {}
    for section, is_without_section, name, parameter in Register.get_all_params():
        known[f"--{name if is_without_section else f'{section}_{name}'}".replace("_", "-")] = parameter
        if section == task:
            known[f"--{name.replace('_', '-')}"] = parameter
    return known
