"""``verify-determinism``: train the run of [Train] again, and compare the weights."""

import argparse
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import luigi

from pipeline import machine
from pipeline.artefacts import layout
from pipeline.artefacts.publish import storage_error
from pipeline.config.refusal import refuse
from pipeline.errors import DamagedArtefactError, GateError
from tasks.commands.command import command
from tasks.process import lock
from tasks.process.interrupt import time_limit
from tasks.sections import Storage, root_folder
from tasks.stage import Stage, from_below
from tasks.train import Train


@command()
def verify_determinism(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Train again and compare the weights."""
    from pipeline.runs.determinism import check_machine, compare, determinism_path, read_determinism

    train, before = Train(), None
    if train.processes > 1:
        refuse("Train", "processes", "1, to train a run again", train.processes)
    lock.hold(root_folder(), on_busy=Storage().on_busy)
    if not train.complete():
        for stage in from_below(train):
            with _working(stage):
                stage.run()
    run = train.output().folder
    check_machine(run, machine.describe())
    train.have_below()
    place = root_folder() / layout.DETERMINISM
    try:
        place.mkdir(exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=".again-", dir=place)
    except OSError as error:
        raise storage_error(error, root_folder(), 0) from error
    with folder as scratch, _working(train), time_limit(train.task_family, train.time_limit_seconds):
        again = Path(scratch, "run")
        again.mkdir()
        train.train_into(again, Path(scratch, "checkpoints"))
        # A damaged result is replaced.
        with contextlib.suppress(DamagedArtefactError):
            before = read_determinism(run)
        found = compare(run, again, before)
    if not found.is_identical:
        others = ", ".join(f"{one.weights_sha256} on {one.hostname}" for one in found.again)
        raise GateError(
            f"{run.name}: trained again it ended with other weights, sha256 {found.first.weights_sha256} on "
            f"{found.first.hostname}, then {others}. [Train] deterministic = true asks for kernels that do not differ."
        )
    sha256 = found.first.weights_sha256
    print(f"{run.name} is bit-identical, weights sha256 {sha256} each time: {determinism_path(run)}")
    return 0


@contextlib.contextmanager
def _working(stage: Stage) -> Iterator[None]:
    """Name a stage in the log, as Luigi does. An error ends the process."""
    stage.trigger_event(luigi.Event.START, stage)
    yield
    stage.trigger_event(luigi.Event.SUCCESS, stage)
