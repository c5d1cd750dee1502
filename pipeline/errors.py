"""Errors meant for the person at the terminal.

Each says what was expected, what came and what to do. The console prints them as one line without a traceback;
any other exception is a defect of ours and keeps its traceback.
"""


class PipelineError(Exception):
    """Base of every error whose message is written for the user."""


class SettingsError(PipelineError, ValueError):
    """A setting is misspelt, of the wrong type or out of range."""


class DatasetUnavailableError(PipelineError):
    """The dataset cannot be had from here: no network, a refused or a failed download."""


class UnsupportedDatasetError(PipelineError):
    """The dataset exists but is not fixed-size image classification with a train and a test split."""


class DamagedArtefactError(PipelineError):
    """A published artefact (shards, weights, metrics) is not what its manifest says."""


class HardwareMismatchError(PipelineError):
    """The requested device is not there."""


class StorageError(PipelineError):
    """The storage root cannot be written."""
