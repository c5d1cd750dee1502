"""The Train stage on one page: read the records, train, evaluate, save the model and write the record."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.artifacts.manifest import check_contents, read_manifest
from pipeline.errors import HardwareMismatchError
from pipeline.hardware.placement import place
from pipeline.problems import problem_of_records
from pipeline.problems.problem import EvaluatedRun, EvaluationSummary
from pipeline.runs.record import RunRecord, write_record
from pipeline.training.checkpoint import History
from pipeline.training.launch import TrainRequest
from pipeline.training.loop import keep_epoch, restore, train_epochs
from pipeline.training.results import augmented_accuracies, known_fields, nothing_measured, outcome_of, save_network
from pipeline.training.setup import Clock, TrainingSetup
from pipeline.training.summaries import Summaries, profile
from pipeline.training.timing import measure

_logger = logging.getLogger(__name__)


def train(request: TrainRequest, folder: Path) -> RunRecord:
    """Train on published records. Writes record, metrics, evaluation, weights, model and TensorBoard logs.

    Every file's sha256 of the records is checked before the first step. Checkpoints outlive a failure, and the caller
    removes them once the run is published. ``folder`` is empty.

    Returns:
        The run's record as it was written. Its status is "skipped", without figures, if the device is unavailable and
        ``on_mismatch`` is "skip".

    Raises:
        DamagedArtifactError: a shard differs from the manifest.
        HardwareMismatchError: the requested device is unavailable.
        StorageError: the disk lacks space for checkpoints and model.
        SettingsError: the batch does not fit the data or the replicas, the model is for another problem, or the
            processes cannot train together.
    """
    settings, group = request.settings, request.group
    group.join(timeout_seconds=settings.join_timeout_seconds)
    clock = Clock(request.started)
    clock.enter("loading")
    manifest = _open_records(request)
    known = known_fields(request, manifest)
    clock.enter("startup")
    try:
        placement = place(settings)
    except HardwareMismatchError as error:
        if settings.on_mismatch != "skip":
            raise
        _logger.warning("Training skipped. %s", error)
        fields = {**nothing_measured(settings), **known, "mismatch": error.mismatch}
    else:
        fields = _train(TrainingSetup(request, folder, manifest, known, placement, clock))
    record = RunRecord(**fields, finished_at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_record(folder, record)
    group.leave()
    return record


def _open_records(request: TrainRequest) -> Mapping:
    """The manifest of the records, after all checks."""
    manifest = read_manifest(request.records)
    problem_of_records(manifest).check(request.settings)
    check_contents(request.records, manifest)
    return manifest


def _train(setup: TrainingSetup) -> dict:
    """The fields of the record."""
    settings, clock = setup.settings, setup.clock
    clock.enter("checkpoint")
    history = restore(setup)
    with setup.placement.explaining():
        summaries = Summaries(setup.folder)
        predictions = train_epochs(setup, history, summaries)
        clock.enter("evaluation")
        kept = keep_epoch(setup, history)
        with setup.evaluating():
            shown = _evaluate(setup, predictions.get("test") if kept == len(history.rows) else None)
            views = settings.test_time_augmentation
            augmented = augmented_accuracies(setup.problem, setup.model, setup.evaluated, views)
        summaries.write_run({**setup.known, "precision": setup.precision}, shown, setup.problem.units)
    clock.enter("saving")
    _logger.info("Saving the model.")
    save_network(setup)
    # Last, because timing a step and profiling train the model on.
    times = _time_parts(setup, history)
    ended = "epochs" if len(history.rows) == settings.epochs else "patience"
    return {**outcome_of(setup, history, kept), **augmented, "ended": ended, "time_breakdown": times}


def _evaluate(setup: TrainingSetup, predictions: Any) -> EvaluationSummary:
    """Evaluate the model on the test split. ``predictions`` may be None."""
    _logger.info("Evaluating on the test split.")
    test, evaluation = setup.evaluated["test"], setup.problem.evaluation
    run = EvaluatedRun(setup.model, setup.settings, setup.stream, test, setup.manifest, setup.folder)
    return evaluation.evaluate(predictions or evaluation.predict(setup.model, test), run)


def _time_parts(setup: TrainingSetup, history: History) -> dict:
    """The time breakdown, with a profile if the settings ask for one."""
    setup.clock.enter("measuring")
    step = measure(setup, history)
    setup.clock.enter("profiling")
    if steps := setup.settings.profile_steps:
        _logger.info("Profiling %d training steps for TensorBoard.", steps)
        profile(setup.model, setup.stream, setup.folder, runtime=setup.placement.runtime, steps=steps)
    setup.clock.enter("saving")
    return step | {f"{part}_seconds": seconds for part, seconds in setup.clock.seconds().items()}
