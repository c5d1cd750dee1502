"""Settings that every stage has."""

from dataclasses import dataclass
from typing import ClassVar

from pipeline.config.refusal import in_range

# tf.random and Beam's options take 32-bit seeds; five digits of shard are what TFDS's file names hold.
MAX_SEED = 2**31 - 1
# A year, below what an alarm of the operating system takes.
MAX_TIME_LIMIT_SECONDS = 366 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """What every stage has."""

    section: ClassVar[str]
    time_limit_seconds: int = 0

    def __post_init__(self) -> None:
        in_range(self.section, "time_limit_seconds", self.time_limit_seconds, 0, MAX_TIME_LIMIT_SECONDS)
