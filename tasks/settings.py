"""Settings as Luigi parameters, made from what ``pipeline.settings`` declares, and the storage root."""

import hashlib
import os
import sys
import types
from collections.abc import Sequence
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
from pipeline.errors import SettingsError, StorageError, closest
from pipeline.settings.experiments import ExperimentSettings
from pipeline.settings.schema import Mark, Setting, Settings, settings_of
from pipeline.settings.storage import ForceSettings, MetricsSettings, NotifySettings, StorageSettings
from tasks import config_files
from tasks.process import command_line, console


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


Experiment, Force, Notify, Metrics, Storage = (
    types.new_class(settings.section, (Section,), {"parameters": settings})
    for settings in (ExperimentSettings, ForceSettings, NotifySettings, MetricsSettings, StorageSettings)
)


@cache
def check_config_file() -> None:
    """Refuse sections and settings that nothing reads. A misspelt one would leave its default in force."""
    config_files.check()
    # The command luigi has parsed its command line by now and takes the beginning of a flag for the whole.
    if Path(sys.argv[0]).stem == "luigi":
        command_line.check(sys.argv[1:])
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


def log_format_of(argv: Sequence[str]) -> str:
    """``log_format`` before Luigi parses the command line, or if it refuses it."""
    in_file = get_config().get("Storage", "log_format", "text")
    return command_line.words_and_flags(argv)[1].get("--Storage-log-format") or in_file


def of_this_root(task_id: str) -> str:
    """A task id for a central scheduler, which must distinguish equal tasks of two storage roots."""
    return f"{task_id}_{hashlib.sha256(str(root_folder()).encode()).hexdigest()[:10]}"


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
    except (FileNotFoundError, NotADirectoryError):
        return root
    # A home of an unknown user, and before Python 3.13 links in a circle.
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
        raise StorageError(f"{setting}: cannot be used ({reason}). Set [Storage] root to a usable folder.") from None
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
