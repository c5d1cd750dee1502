"""Reach: whether an engine's workers could write records, tried by a job that writes none (for ``make doctor``)."""

import tempfile
from pathlib import Path

import apache_beam as beam

from pipeline.config import RecordsSettings
from pipeline.shards import presence
from pipeline.shards.engine import make_runner, require_engine, running

# Enough that no worker is left without one.
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
    with tempfile.TemporaryDirectory(prefix=".reach-", dir=root) as folder:
        presence.expect(Path(folder))
        with running(settings) as pipeline:
            (
                pipeline
                | "Plan meetings" >> beam.Create(range(_ELEMENTS))  # number
                | "Spread meetings" >> beam.Reshuffle()  # number
                | "Meet" >> beam.Map(_meet, folder)  # number
            )
        found = presence.signed_in(Path(folder))
    return (
        f"{name} at {where}: {found['processes']} worker processes on {found['hosts']} hosts see the storage root, "
        "with this version of the project and its packages"
    )


def _meet(number: int, folder: str) -> int:
    presence.sign_in(Path(folder))
    return number
