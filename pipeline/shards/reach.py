"""Reach: whether an engine's workers could write records, tried by a job that writes none (for ``make doctor``)."""

import tempfile
from pathlib import Path

import apache_beam as beam

from pipeline.config.data import RecordsSettings
from pipeline.errors import EngineUnavailableError, PipelineError
from pipeline.shards import presence
from pipeline.shards.engine import last_line, make_runner, require_engine, running
from pipeline.shards.shared import Shared, Store, left_clear, shared_by_workers

# For more workers than most have; which of them take one is the engine's choice.
_ELEMENTS = 64


def reach(settings: RecordsSettings, root: Path, store: Store | None = None) -> str:
    """Have the workers of a cluster meet where they hand on records, each with the code and packages of this process.

    Args:
        settings: runner and flags.
        root: the storage root.
        store: see ``write_records``.

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
        shared = shared_by_workers(Path(folder), store)
        with left_clear(shared):
            presence.expect(shared)
            try:
                _try_out(settings, shared)
            except PipelineError:
                raise
            # An engine's client has errors of every kind; a worker without the project cannot even begin.
            except Exception as error:
                raise EngineUnavailableError(
                    f"{name} at {where}: a job that writes nothing failed there: {last_line(error)}"
                ) from error
            found = presence.signed_in(shared)
    return (
        f"{name} at {where}: {found['processes']} worker processes on {found['hosts']} hosts answered; they see the "
        f"{'remote' if store else 'storage root'}, with this version of the project and its packages"
    )


def _try_out(settings: RecordsSettings, shared: Shared) -> None:
    with running(settings) as pipeline:
        (
            pipeline
            | "Plan meetings" >> beam.Create(range(_ELEMENTS))  # number
            | "Spread meetings" >> beam.Reshuffle()  # number
            | "Meet" >> beam.Map(_meet, shared)  # number
        )


def _meet(number: int, shared: Shared) -> int:
    presence.sign_in(shared)
    return number
