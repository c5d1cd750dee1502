"""Settings as Luigi parameters, made from what ``pipeline.settings`` declares, in files and on the command line.

Luigi accepts abbreviated flags. For an unknown flag it prints the usage of all settings, and for an invalid value a
traceback. ``check_command_line`` refuses all three with one line.
"""

import contextlib
import hashlib
import os
import re
import sys
import types
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

import luigi

# The sections of Luigi are known once these modules are imported.
import luigi.interface
import luigi.notifications
import luigi.retcodes
from luigi.cmdline_parser import CmdlineParser
from luigi.configuration import get_config
from luigi.parameter import ParameterVisibility
from luigi.task_register import Register

from pipeline.artifacts import layout
from pipeline.errors import PipelineError, SchedulerUnavailableError, SettingsError, StorageError, causes, closest
from pipeline.settings import SECTIONS
from pipeline.settings.schema import Mark, Setting, Settings, settings_of
from pipeline.settings.storage import SECTIONS_WITHOUT_STAGE, StorageSettings
from tasks import config_files
from tasks.process import console

_TASKS = ("Source", "Records", "Train", "Report", "Nightly", "Export")
# Per address of the scheduler's name.
_TIMEOUT_SECONDS = 4


class SettingParameter(luigi.Parameter):
    """One setting as a parameter."""

    # Luigi sets it early, and reads it for a help page. argparse formats it with %.
    description = property(lambda self: self._setting.summary().replace("%", "%%"), lambda self, text: None)

    def __init__(self, setting: Setting) -> None:
        super().__init__(
            default=setting.default,
            significant=Mark.NOT_IN_IDENTITY not in setting.marks,
            visibility=ParameterVisibility.PRIVATE if Mark.SECRET in setting.marks else ParameterVisibility.PUBLIC,
        )
        self._setting = setting
        # Methods of Luigi: the one form of values that mean the same, and the text that parse takes.
        self.normalize, self.serialize = setting.spelled, setting.written

    def parse(self, x: str) -> object:
        """The value that a text stands for."""
        try:
            return self._setting.parse(x)
        except SettingsError:
            # Luigi parses the flags of the root task before anything else sets up the console.
            console.configure()
            raise


class Configured:
    """A task class with one parameter per setting of ``parameters``."""

    parameters: type[Settings]

    def __init_subclass__(cls, *, parameters: type[Settings] | None = None, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if parameters:
            cls.parameters = parameters
            for setting in settings_of(parameters):
                parameter = SettingParameter(setting)
                parameter.__set_name__(cls, setting.name)
                setattr(cls, setting.name, parameter)


class Section(Configured, luigi.Config):
    """A section of config.ini without a stage. It validates its settings."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.parameters(**self.param_kwargs)


Storage, Experiment, Force, Notify, Metrics = (
    types.new_class(settings.section, (Section,), {"parameters": settings}) for settings in SECTIONS_WITHOUT_STAGE
)


@cache
def check_config_file() -> None:
    """Refuse sections and settings that nothing reads. A misspelt one would leave its default in force."""
    config_files.check()
    # The command luigi has parsed its command line by now and takes the beginning of a flag for the whole.
    if Path(sys.argv[0]).stem == "luigi":
        check_command_line(sys.argv[1:])
    # Luigi reads these without a parameter.
    known = {"core": {"no_configure_logging", "autoload_range", "rpc_retry_attempts", "rpc_retry_wait"}}
    known["resources"] = {"accelerator"}
    for section, _, name, _ in Register.get_all_params():
        known.setdefault(section, set()).add(name)
    parser = get_config()
    for section in parser.sections():
        if section not in known:
            hint = closest(section, [*known])
            file = config_files.places.get(section, "luigi.cfg")
            raise SettingsError(f"{file}: unknown section [{section}].{hint}")
        for name in parser[section]:
            if name not in known[section]:
                hint = closest(name, [*known[section]])
                file = config_files.places.get(f"{section}.{name}", "luigi.cfg")
                raise SettingsError(f"{file}: [{section}] has no setting {name!r}.{hint}")


@contextlib.contextmanager
def in_force(argv: Sequence[str], others: Collection[str] = ()) -> Iterator[CmdlineParser]:
    """Apply the settings of a command line that starts with ``--module``. See ``check_command_line``."""
    check_command_line(argv, others)
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
            f"{url}: Luigi's central scheduler does not respond ({type(error).__name__}). {console.SCHEDULER_REMEDY}"
        ) from error


def check_command_line(argv: Sequence[str], others: Collection[str] = ()) -> None:
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
        if flag == "--workers" and int(value) < 1:
            raise SettingsError(f"command line: --workers: expected 1 or more, got {value}.")


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


def unreadable_value(error: BaseException) -> SettingsError | None:
    """The error for the user if Luigi cannot read a value, such as ``[core] workers = two`` or an unset variable."""
    for one in causes(error):
        if found := re.match(r"(\w+)\[args=.*: Error when parsing the default value of '(\w+)'$", str(one)):
            file = config_files.places.get(".".join(found.groups()), "luigi.cfg")
            reason = " ".join(str(one.__cause__).split()).rstrip(".")
            return SettingsError(f"[{found[1]}] {found[2]}: {reason}. Change it in {file}.")
    return None


def of_this_root(task_id: str) -> str:
    """A task id for a central scheduler, which must distinguish equal tasks of two storage roots."""
    return f"{task_id}_{hashlib.sha256(os.fsencode(root_folder())).hexdigest()[:10]}"


def root_folder() -> Path:
    """The storage root. A relative setting starts at the project's folder."""
    setting, parser = Storage().root, CmdlineParser.get_instance()
    if parser and getattr(parser.known_args, "Storage_root", None) == "":
        # Luigi ignores a flag whose value is empty. The settings refuse it.
        StorageSettings(root="")
    try:
        root = (config_files.project_folder() / Path(setting).expanduser()).resolve()
        # Whether the longest name of an artifact fits behind it. Neither need exist.
        os.stat(root / ("x" * 250))
    except FileNotFoundError:
        return root
    # A home of an unknown user, and before Python 3.13 links in a circle.
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise StorageError(f"{setting}: cannot be used ({reason}). Set [Storage] root to a writable folder.") from None
    return root


def champion() -> Path | None:
    """The folder of the run in use, None without one. SettingsError: the link does not lead to a run."""
    link, runs = root_folder() / layout.CHAMPION, root_folder() / layout.RUNS
    if not link.is_symlink():
        return None
    folder = Path(os.path.realpath(link))
    if folder.parent != runs or not folder.is_dir():
        raise SettingsError(
            f"{link}: expected a link to a run in {runs}, got one to {os.readlink(link)}. "
            'Choose a run with "tensorcraft promote RUN", or remove the link.'
        )
    return folder


def schedule_name() -> str:
    """The name of the experiment, which must exist, for files of its schedule. Empty means config.ini alone."""
    config_files.check()
    return config_files.requested_experiment() or Experiment().name


def report_page() -> Path:
    """The page of the newest report."""
    return root_folder() / layout.REPORT / layout.REPORT_PAGE


def outcome_path() -> Path | None:
    """Path of the outcome of the last scheduled run. None if the settings name no usable root."""
    with contextlib.suppress(PipelineError):
        name = schedule_name()
        return root_folder() / (f"last_outcome-{name}.json" if name else "last_outcome.json")
    return None
