"""Errors for the user, each with the exit code of a process that ends with it.

The console prints them as one line without a traceback. Any other exception is a defect, keeps its traceback and ends
with exit code 1.
"""

import re
from collections.abc import Callable, Iterator, Mapping

# Parts of TensorFlow's errors that name nodes of its graph: "{{function_node __wrapped__…}}" and "[Op:…] name: ".
_OF_A_GRAPH = re.compile(r"\{\{\w*node [^}]*\}\}\s*|\s*\[Op:\w+\](\s*name:)?")
# User and password of an address. A password may contain an @.
_USERINFO = re.compile(r"(?<=://)[^/\s?#]*(?=@)")
HIDDEN = "***"


def message(build: Callable[..., str]) -> Callable[..., str]:
    """Mark a function that only builds a message for people.

    The code digest leaves the function out (artifacts/code_digest.py). Rewording a message keeps every artifact fresh.
    """
    return build


def without_userinfo(text: str) -> str:
    """The text with ``***`` for user and password in each address."""
    return _USERINFO.sub(HIDDEN, text)


class PipelineError(Exception):
    """Base of the errors for the user. A subclass declares its ``exit_code`` or has that of its base."""

    exit_code = 1

    def __init_subclass__(cls, *, exit_code: int | None = None) -> None:
        super().__init_subclass__()
        if exit_code is not None:
            cls.exit_code = exit_code

    def __str__(self) -> str:
        return without_userinfo(_OF_A_GRAPH.sub("", super().__str__()).rstrip())


class SettingsError(PipelineError, ValueError, exit_code=2):
    """A setting is unknown, of the wrong type or out of range. The exit code is that of argparse."""


class DatasetUnavailableError(PipelineError, exit_code=3):
    """The dataset cannot be downloaded."""


class UnsupportedDatasetError(SettingsError):
    """The dataset exists but is not image classification with a train split."""


class DamagedArtifactError(PipelineError, exit_code=4):
    """An artifact, the prepared dataset or a download differs from its manifest or digest."""


class ChangedSourceError(DamagedArtifactError):
    """A file of the source differs from the source's artifact, which must be rebuilt."""


class UnreadableArtifactError(DamagedArtifactError, exit_code=6):
    """This user may not read an artifact. Nothing replaces it. The remedy is that of a StorageError."""


class BusyError(PipelineError, exit_code=5):
    """Another process uses the storage root."""


class StorageError(PipelineError, exit_code=6):
    """The storage root cannot be written, or has too little free space."""


class HardwareMismatchError(PipelineError, exit_code=7):
    """The requested device is unavailable. ``mismatch`` has the cause as plain data."""

    def __init__(self, message: str, mismatch: Mapping[str, str]) -> None:
        super().__init__(message)
        self.mismatch = mismatch


class TimeLimitError(PipelineError, exit_code=8):
    """A stage ran past its time limit."""


class GateError(PipelineError, exit_code=9):
    """The runs do not meet the requirements. The report is written nevertheless."""


class SchedulerUnavailableError(PipelineError, exit_code=10):
    """Luigi's central scheduler does not answer."""


class RemoteError(PipelineError, exit_code=11):
    """The remote does not answer, or refuses."""


class EngineUnavailableError(PipelineError, exit_code=12):
    """The cluster for the Beam job does not answer, or its workers lack a requirement."""


class IncompleteTrainingError(PipelineError):
    """The optimizer made another number of updates than the settings and data require."""


class WorkerDiedError(PipelineError):
    """A child process or a worker of Beam died."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its chain of causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def error_for_user(error: BaseException | None) -> PipelineError | None:
    """The first error for the user in a chain of causes. Luigi and Beam wrap the errors that a stage raises."""
    return next((one for one in causes(error) if isinstance(one, PipelineError)), None)
