"""Settings that every stage has."""

from typing import Annotated

from pipeline.config.schema import NOT_IN_IDENTITY, Settings, config_section, integer

# A year. The alarm of an operating system takes no more.
MAX_TIME_LIMIT_SECONDS = 366 * 24 * 3600
_HELP = "Seconds the stage may take. Then it is stopped with exit code 8. 0 means no limit."


@config_section("")
class StageSettings(Settings):
    """Settings that every stage has."""

    time_limit_seconds: Annotated[int, integer(0, MAX_TIME_LIMIT_SECONDS), _HELP, NOT_IN_IDENTITY] = 0
