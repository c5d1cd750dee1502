"""Errors meant for the person at the terminal, each with the exit code of the process that ends with it.

Each says what was expected, what came and what to do. The console prints them as one line without a traceback;
any other exception is a defect of ours, keeps its traceback and ends with exit code 1.
"""

import re
from collections.abc import Callable, Mapping
from typing import ParamSpec

from pipeline.redaction import without_userinfo

# What TensorFlow's errors, which ours quote, say of its graph: "{{function_node __wrapped__…}}" and "[Op:…] name: ".
_OF_A_GRAPH = re.compile(r"\{\{\w*node [^}]*\}\}\s*|\s*\[Op:\w+\](\s*name:)?")


_P = ParamSpec("_P")


def message(build: Callable[_P, str]) -> Callable[_P, str]:
    """Mark a function that only builds a message for people.

    The code digest leaves the function out (``artefacts/syntax.py``). Rewording a message keeps every artefact fresh.
    """
    return build


class PipelineError(Exception):
    """Base of every error whose message is written for the user."""

    exit_code = 1

    def __str__(self) -> str:
        return without_userinfo(_OF_A_GRAPH.sub("", super().__str__()).rstrip())


class SettingsError(PipelineError, ValueError):
    """A setting is misspelt, of the wrong type or out of range."""

    # What argparse ends with for an unknown flag.
    exit_code = 2


class DatasetUnavailableError(PipelineError):
    """The dataset is unavailable: no network, a refused or a failed download."""

    exit_code = 3


class UnsupportedDatasetError(SettingsError):
    """The dataset exists but is not image classification with a train split."""


class DamagedArtefactError(PipelineError):
    """An artefact, the prepared dataset or a download is not what its manifest or digest says."""

    exit_code = 4


class ChangedSourceError(DamagedArtefactError):
    """A file of the source is not what the source's artefact says, so that the artefact must be rebuilt."""


class UnreadableArtefactError(DamagedArtefactError):
    """An artefact is there, but this user may not read it: nobody knows what it is worth, and nothing replaces it."""

    # As of any folder that cannot be used: what remedies it is done there.
    exit_code = 6


class BusyError(PipelineError):
    """Another process is at work on the storage root."""

    exit_code = 5


class StorageError(PipelineError):
    """The storage root cannot be written, or has too little free space."""

    exit_code = 6


class HardwareMismatchError(PipelineError):
    """The requested device is not there; ``mismatch`` says why as plain data."""

    exit_code = 7

    def __init__(self, message: str, mismatch: Mapping[str, str]) -> None:
        super().__init__(message)
        self.mismatch = mismatch


class TimeLimitError(PipelineError):
    """A stage ran past its time limit."""

    exit_code = 8


class GateError(PipelineError):
    """The runs asked for are not what was demanded of them; the report, or what was found, is there all the same."""

    exit_code = 9


class SchedulerUnavailableError(PipelineError):
    """Luigi's central scheduler was asked for and does not answer."""

    exit_code = 10


class RemoteError(PipelineError):
    """The remote, through which artefacts are shared, does not answer or refuses."""

    exit_code = 11


class EngineUnavailableError(PipelineError):
    """The cluster that the Beam job is to run on does not answer, or its workers lack what they need."""

    exit_code = 12


class IncompleteTrainingError(PipelineError):
    """The optimizer made another number of updates than the run's settings and data come to."""


class WorkerDiedError(PipelineError):
    """A process that worked for this one died: a worker of Beam's, or one that trained on another backend."""


def error_for_user(error: BaseException | None) -> PipelineError | None:
    """The error written for the user in a chain of causes: Luigi and Beam wrap the errors that a stage raises."""
    while error is not None and not isinstance(error, PipelineError):
        error = error.__cause__ or error.__context__
    return error
