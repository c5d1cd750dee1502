"""Luigi parameters of a task class, made from the settings that ``pipeline.config`` declares."""

import sys
from functools import cache
from pathlib import Path

import luigi

# The sections of Luigi are known once these modules are imported.
import luigi.interface
import luigi.notifications
import luigi.retcodes
from luigi.configuration import get_config
from luigi.parameter import ParameterVisibility
from luigi.task_register import Register

from pipeline.config.refusal import closest, remedy
from pipeline.config.schema import Mark, Setting, Settings, settings_of
from pipeline.errors import SettingsError
from tasks import config_files
from tasks.process import command_line, console


class SettingParameter(luigi.Parameter):
    """One setting as a parameter."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(
            default=setting.default,
            significant=Mark.NOT_IN_IDENTITY not in setting.marks,
            visibility=ParameterVisibility.PRIVATE if Mark.SECRET in setting.marks else ParameterVisibility.PUBLIC,
            # argparse formats the text with %.
            description=setting.summary().replace("%", "%%"),
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


def add_parameters(task: type[luigi.Task], settings: type[Settings]) -> None:
    """Give a task class one parameter per setting."""
    for setting in settings_of(settings):
        parameter = SettingParameter(setting)
        parameter.__set_name__(task, setting.name)
        setattr(task, setting.name, parameter)


class Section(luigi.Config):
    """A section of config.ini without a stage. ``parameters`` are its settings, which it validates."""

    parameters: type[Settings]

    def __init_subclass__(cls, *, parameters: type[Settings], **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls.parameters = parameters
        add_parameters(cls, parameters)

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.parameters(**self.param_kwargs)


@cache
def check_config_file() -> None:
    """Refuse sections and settings that nothing reads. A misspelt one would leave its default in force.

    Raises:
        SettingsError: names the experiment, section or setting, and the nearest that exists.
    """
    config_files.check()
    # The command luigi has parsed its command line by now and takes the beginning of a flag for the whole.
    if Path(sys.argv[0]).stem == "luigi":
        command_line.check(sys.argv[1:])
    known = _known_settings()
    parser = get_config()
    for section in parser.sections():
        if section not in known:
            hint = remedy(f"[{section}]") or closest(section, [*known])
            raise SettingsError(f"config: no task or tool reads section [{section}].{hint}")
        for name in parser[section]:
            if name not in known[section]:
                flag = f"--{section}-{name.replace('_', '-')}"
                hint = remedy(flag) or closest(name, [*known[section]])
                raise SettingsError(f"config: [{section}] has no setting {name!r}.{hint}")


def _known_settings() -> dict[str, set[str]]:
    """Section → settings, of our tasks and of Luigi's own sections."""
    known: dict[str, set[str]] = {}
    for section, _, name, _ in Register.get_all_params():
        known.setdefault(section, set()).add(name)
    # Luigi reads these without a parameter.
    known["core"] |= {"no_configure_logging", "autoload_range", "rpc_retry_attempts", "rpc_retry_wait"}
    known["resources"] = {"accelerator"}
    return known
