"""Settings that every stage has."""

from typing import Annotated

from pipeline.config.schema import NOT_IN_IDENTITY, Settings, config_section, integer


@config_section("")
class StageSettings(Settings):
    """Settings that every stage has."""

    # At most a year. The alarm of an operating system takes no more.
    time_limit_seconds: Annotated[int, integer(0, 366 * 24 * 3600), NOT_IN_IDENTITY] = 0
    """Seconds the stage may take. Then it is stopped with exit code 8. 0 means no limit."""
