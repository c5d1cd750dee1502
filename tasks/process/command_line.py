"""Luigi's overrides such as ``--Train-epochs 1``, in force for a block.

Luigi's own parser accepts the beginning of a flag, shows the usage of all settings if one is unknown, and a traceback
if a value is wrong. ``check`` refuses all three with one line.
"""

import contextlib
import io
from collections.abc import Collection, Iterator, Sequence

import luigi
from luigi.cmdline_parser import CmdlineParser
from luigi.task_register import Register

from pipeline.config.refusal import closest, remedy
from pipeline.errors import PipelineError, SettingsError

_TASKS = ("Source", "Records", "Train", "Report", "Nightly", "Export")
_HELP = "tensorcraft run --help-all lists the settings."


@contextlib.contextmanager
def in_force(argv: Sequence[str], others: Collection[str] = ()) -> Iterator[CmdlineParser]:
    """The block under the overrides of a command line.

    Args:
        argv: the command line, from ``--module`` on.
        others: flags that are no settings, to be proposed if one is unknown.

    Raises:
        SettingsError: a flag or task is unknown, a word belongs to no flag, or a value is wrong.
    """
    check(argv, others)
    said = io.StringIO()
    with contextlib.ExitStack() as stack:
        try:
            with contextlib.redirect_stderr(said):
                parser = stack.enter_context(CmdlineParser.global_instance(list(argv)))
        except SystemExit as end:
            if end.code != 2:
                raise
            raise SettingsError(f"command line: {said.getvalue().strip().rpartition('error: ')[2]}. {_HELP}") from None
        yield parser


def check(argv: Sequence[str], others: Collection[str] = ()) -> None:
    """Refuse unknown flags and tasks, words that belong to no flag, and wrong values.

    Raises:
        SettingsError: names the flag, the value or the word, and the nearest that exists.
    """
    words, flags = _taken_apart(argv)
    if words[1:]:
        raise SettingsError(f"command line: expected a flag before {words[1]!r}, as in --Train-epochs 1. {_HELP}")
    if words and words[0] not in Register.task_names():
        hint = closest(words[0], _TASKS)
        raise SettingsError(f"command line: expected a task of {', '.join(_TASKS)}, got {words[0]!r}.{hint}")
    # Luigi shows its help without a task.
    if not words and not flags.keys() & {"--help", "--help-all"}:
        raise SettingsError("command line: expected a task, as in: tensorcraft run Report.")
    known = _known_flags(words[0] if words else "")
    for flag, value in flags.items():
        if flag not in known:
            section = "-".join(flag.split("-")[:3])
            near = [one for one in known if one.startswith(f"{section}-")]
            hint = remedy(flag) or closest(flag, near) or closest(flag, [*known, *others])
            raise SettingsError(f"command line: unrecognized argument {flag}.{hint} {_HELP}")
        if value is not None:
            _check_value(flag, value, known[flag])


def names_task(argv: Sequence[str]) -> bool:
    """Whether a command line names a task, perhaps after switches such as ``--local-scheduler``."""
    return bool(_taken_apart(argv)[0])


def _taken_apart(argv: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """The words that belong to no flag, and flag → value. None is the value of switches and of a flag without one."""
    switches = {flag for flag, parameter in _known_flags("").items() if isinstance(parameter, luigi.BoolParameter)}
    words, flags, waiting = [], {}, ""
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            flags[name], waiting = (value, "") if equals else (None, "" if name in switches else name)
        elif waiting:
            flags[waiting], waiting = word, ""
        else:
            words.append(word)
    return words, flags


def _known_flags(task: str) -> dict[str, luigi.Parameter]:
    """Flags of section and setting. The flags of the requested task may omit the section."""
    known = {}
    for section, is_without_section, name, parameter in Register.get_all_params():
        known[f"--{name if is_without_section else f'{section}_{name}'}".replace("_", "-")] = parameter
        if section == task:
            known[f"--{name.replace('_', '-')}"] = parameter
    return known


def _check_value(flag: str, value: str, parameter: luigi.Parameter) -> None:
    try:
        parameter.parse(value)
    except PipelineError:
        raise
    # Luigi's parameters raise various exceptions.
    except Exception as error:
        raise SettingsError(f"command line: {flag}: cannot be {value!r}: {error}.") from error
