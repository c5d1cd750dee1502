"""Errors for the user, with their exit codes and the hints in their messages.

The console prints such an error without a traceback. Any other exception is a defect. It keeps its
traceback and ends the process with exit code 1.
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

# Graph nodes in TensorFlow's errors, such as "{{function_node __wrapped__…}}" and "[Op:…] name: ".
_GRAPH_NODES = re.compile(r"\{\{\w*node [^}]*\}\}\s*|\s*\[Op:\w+\](\s*name:)?")
# User and password in an address. A password may contain an @.
_USERINFO = re.compile(r"(?<=://)[^/\s?#]*(?=@)")
HIDDEN = "***"
#: Variable with the flags of this command, and with the file of each setting, as JSON. Processes of stages inherit it.
PLACES = "TENSORCRAFT_SETTING_PLACES"
# Terms of other programs and of version 0.1 → names and values of settings.
_SYNONYMS = {"cuda": "gpu", "nvidia": "gpu", "fp32": "float32", "bf16": "bfloat16", "synthetic": "placeholder"}
_SYNONYMS |= {"recipe": "training_recipe", "recipes": "training_recipes"}


def message(build: Callable[..., str]) -> Callable[..., str]:
    """Mark a function that only builds a message for people.

    The code digest leaves the function out, so that a reworded message keeps every artifact fresh.
    """
    return build


@message
def plural(count: int, noun: str) -> str:
    """Format a count with its noun, such as "1 run" or "3 runs"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@message
def closest(name: str, known: Sequence[str], key: Callable[[str], str] = str) -> str:
    """Suggest the known name whose ``key`` is closest to that of ``name``. Return an empty string if none is close."""
    names = {key(each): each for each in known}
    matches = difflib.get_close_matches(_SYNONYMS.get(key(name), key(name)), names, n=1)
    return f" Did you mean {names[matches[0]]!r}?" if matches else ""


def without_userinfo(text: str) -> str:
    """Replace user and password in each address by ``***``."""
    return _USERINFO.sub(HIDDEN, text)


class PipelineError(Exception):
    """Base of the errors for the user. A subclass declares its ``exit_code`` or inherits it.

    The arguments are sentences. The remedy may be one of its own, so that a status can leave it out.
    """

    exit_code = 1

    def __init_subclass__(cls, *, exit_code: int | None = None) -> None:
        super().__init_subclass__()
        if exit_code is not None:
            cls.exit_code = exit_code

    def __str__(self) -> str:
        return without_userinfo(_GRAPH_NODES.sub("", " ".join(map(str, self.args))).rstrip())


class SettingsError(PipelineError, ValueError, exit_code=2):
    """A setting is unknown, has the wrong type or is out of range. argparse has the same exit code."""


def refuse(section: str, name: str, expected: str, got: object, hint: str = "") -> None:
    """Raise a SettingsError with the setting, the expected values, the value received and the remedy."""
    places = json.loads(os.environ.get(PLACES, "{}"))
    # The flags of the requested task may omit the section.
    flags = [f"--{words}".replace("_", "-") for words in (f"{section}-{name}", name)]
    passed, file = [flag for flag in flags if flag in places], places.get(f"{section}.{name}", "config.ini")
    raise SettingsError(
        f"[{section}] {name}: expected {expected}, got {got!r}.{hint}",
        f"Change {passed[0]}." if passed else f"Change it in {file} or pass {flags[0]}.",
    )


class DatasetUnavailableError(PipelineError, exit_code=3):
    """The dataset, or the pretrained weights, cannot be downloaded."""


class UnsupportedDatasetError(SettingsError):
    """The dataset exists but is not supported, such as one without a train split."""


class DamagedArtifactError(PipelineError, exit_code=4):
    """An artifact, the prepared dataset or a download differs from its manifest or digest."""


class ChangedSourceError(DamagedArtifactError):
    """A file of the source has changed, so the source's artifact must be rebuilt."""


class UnreadableArtifactError(DamagedArtifactError, exit_code=6):
    """This user may not read an artifact. The pipeline does not replace it."""


class BusyError(PipelineError, exit_code=5):
    """Another process uses the storage root."""


class StorageError(PipelineError, exit_code=6):
    """The storage root cannot be written, or has too little free space."""


class HardwareMismatchError(PipelineError, exit_code=7):
    """The requested device is unavailable. ``mismatch`` contains the cause as JSON data."""

    def __init__(self, message: str, mismatch: Mapping[str, str]) -> None:
        super().__init__(message)
        self.mismatch = mismatch


class TimeLimitError(PipelineError, exit_code=8):
    """A stage exceeded its time limit."""


class GateError(PipelineError, exit_code=9):
    """The runs do not meet the thresholds. The report is written nevertheless."""


class SchedulerUnavailableError(PipelineError, exit_code=10):
    """Luigi's central scheduler does not answer."""


class RemoteError(PipelineError, exit_code=11):
    """The remote does not answer or refuses a request."""


class EngineUnavailableError(PipelineError, exit_code=12):
    """The cluster for the Beam job does not answer, or its workers lack a requirement."""


class IncompleteTrainingError(PipelineError):
    """The optimizer made another number of updates than required."""


class WorkerDiedError(PipelineError):
    """A child process or a Beam worker died."""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its chain of causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def error_for_user(error: BaseException | None) -> PipelineError | None:
    """The first error for the user in a chain of causes. Luigi and Beam wrap the errors of a stage."""
    return next((cause for cause in causes(error) if isinstance(cause, PipelineError)), None)
