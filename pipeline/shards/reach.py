"""Reach: whether an engine's workers could write records, tried by a job that writes none (for ``make doctor``)."""

import tempfile
from pathlib import Path

import apache_beam as beam

from pipeline.config import RecordsSettings
from pipeline.errors import EngineUnavailableError, PipelineError
from pipeline.shards import presence
from pipeline.shards.engine import make_runner, require_engine, running

# For more workers than most have; which of them take one is the engine's choice.
_ELEMENTS = 64


def reach(settings: RecordsSettings, root: Path) -> str:
    """Have the workers of a cluster meet in the storage root, each with the code and packages of this process.

    Args:
        settings: runner and flags.
        root: the storage root.

    Returns:
        What was found, for people.

    Raises:
        SettingsError: Beam knows no such runner or flag, or a part of it is not there.
        EngineUnavailableError: the engine does not answer, or a worker lacks the root, the code or the packages.
    """
    runner = make_runner(settings)
    name = f"Beam's {type(runner).__name__}"
    if not (where := require_engine(settings, runner)):
        return name
    # What a late attempt writes must not end the rest.
    with tempfile.TemporaryDirectory(prefix=".reach-", dir=root, ignore_cleanup_errors=True) as folder:
        presence.expect(Path(folder))
        try:
            _try_out(settings, folder)
        except PipelineError:
            raise
        # An engine's client has errors of every kind; a worker without the project cannot even begin.
        except Exception as error:
            last = next((line for line in reversed(str(error).splitlines()) if line.strip()), type(error).__name__)
            raise EngineUnavailableError(
                f"{name} at {where}: a job that writes nothing failed there: {last}"
            ) from error
        found = presence.signed_in(Path(folder))
    return (
        f"{name} at {where}: {found['processes']} worker processes on {found['hosts']} hosts answered; they see the "
        "storage root, with this version of the project and its packages"
    )


def _try_out(settings: RecordsSettings, folder: str) -> None:
    with running(settings) as pipeline:
        (
            pipeline
            | "Plan meetings" >> beam.Create(range(_ELEMENTS))  # number
            | "Spread meetings" >> beam.Reshuffle()  # number
            | "Meet" >> beam.Map(_meet, folder)  # number
        )


def _meet(number: int, folder: str) -> int:
    presence.sign_in(Path(folder))
    return number
