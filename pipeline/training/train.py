"""The Train stage: read the records, train, evaluate, save the model and write the run's record."""

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from pipeline.artifacts.manifest import check_contents, read_manifest
from pipeline.errors import HardwareMismatchError, message, plural
from pipeline.hardware.placement import place
from pipeline.problems import problem_of_records
from pipeline.problems.problem import EVALUATION_NAME, EvaluatedRun, Problem
from pipeline.records.features import VALUES
from pipeline.runs.metrics import TENSORBOARD_NAME
from pipeline.runs.record import RunRecord, write_record
from pipeline.training.launch import TrainRequest
from pipeline.training.loop import restore, select_epoch, train_epochs
from pipeline.training.results import (
    Summaries,
    augmented_accuracies,
    request_fields,
    result_fields,
    save_model,
    skipped_fields,
)
from pipeline.training.setup import Clock, TrainingSetup
from pipeline.training.timing import measure

# Labels in the log.
_MAX_LABELS = 5

_logger = logging.getLogger(__name__)


def train(request: TrainRequest, folder: Path) -> RunRecord:
    """Train a model on published records, write the run into an empty folder, and return its record.

    The run has a record, metrics, an evaluation, weights, a model and TensorBoard logs. The SHA-256 of every file of
    the records is checked first. Checkpoints survive a failure. The caller removes them after publishing the run. If
    the device is unavailable and ``on_mismatch`` is "skip", the record has the status "skipped" and no metrics.

    DamagedArtifactError: A shard differs from the manifest. HardwareMismatchError: The requested device is unavailable.
    StorageError: The disk lacks space for checkpoints and model. SettingsError: The batch does not fit the data or the
    replicas, the model is for another problem, or the processes cannot train together.
    """
    group = request.group
    group.join(timeout_seconds=request.settings.join_timeout_seconds)
    clock = Clock(request.started)
    clock.enter("loading")
    manifest = read_manifest(request.records)
    request = _checked(request, manifest)
    settings = request.settings
    fields = request_fields(request, manifest)
    clock.enter("startup")
    try:
        placement = place(settings)
    except HardwareMismatchError as error:
        if settings.on_mismatch != "skip":
            raise
        _logger.warning("Training skipped. %s", error)
        fields = {**skipped_fields(settings), **fields, "mismatch": error.mismatch}
    else:
        fields = _train(TrainingSetup(request, folder, manifest, fields, placement, clock))
    record = RunRecord(**fields, finished_at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_record(folder, record)
    group.leave()
    return record


def _checked(request: TrainRequest, manifest: Mapping) -> TrainRequest:
    """Check the settings and the records. Return the request without settings that are ``auto``."""
    problem, train_split = problem_of_records(manifest), manifest["splits"]["train"]
    # The Train stage has chosen values. A caller in Python may not.
    if chosen := problem.chosen(request.settings, problem.content_shape(manifest), train_split["num_examples"]):
        request = replace(request, settings=replace(request.settings, **chosen), chosen=chosen)
    problem.check(request.settings)
    check_contents(request.records, manifest)
    _logger.info("%s", _described(request, manifest, problem))
    return request


@message
def _described(request: TrainRequest, manifest: Mapping, problem: Problem) -> str:
    """Number and shape of the examples, their labels, and the settings that were chosen for them."""
    splits = ", ".join(f"{split['num_examples']:,} {name}" for name, split in manifest["splits"].items())
    task, units, names = problem.task(manifest), problem.units, manifest["label_names"]
    shape, labels = "×".join(map(str, task.input_shape)), ""
    if len(task.input_shape) == 1:
        shape = f"{shape} {units.plural if task.label_shape else 'bytes'}"
    if task.label_shape:
        labels = f", {len(names)} different {units.plural}"
    elif task.meaning == VALUES:
        labels = f", {plural(len(names), 'value')}: {', '.join(names[:_MAX_LABELS])}"
    elif counts := manifest["splits"]["train"].get("label_counts"):
        named = [f"{name} ({count:,})" for name, count in counts.items()][:_MAX_LABELS]
        labels = f", {len(names)} labels: {', '.join(named)}{', …' if len(names) > _MAX_LABELS else ''}"
    chosen = ", ".join(f"{name} = {value}" for name, value in request.chosen.items() if value)
    return f"Data: {splits} {units.examples} of {shape}{labels}" + (f". Chose {chosen} for them." if chosen else ".")


def _train(setup: TrainingSetup) -> dict:
    """Train and evaluate. Return the fields of the record."""
    settings, clock = setup.settings, setup.clock
    clock.enter("checkpoint")
    restore(setup)
    summaries = Summaries(setup.folder)
    predictions = train_epochs(setup, summaries)
    clock.enter("evaluation")
    epoch, epochs = select_epoch(setup), len(setup.history.rows)
    _logger.info("Evaluating on the test split.")
    test, evaluation = setup.evaluated["test"], setup.problem.evaluation
    validation = setup.evaluated.get("validation")
    run = EvaluatedRun(setup.model, settings, setup.stream, test, setup.manifest, setup.folder, validation)
    with setup.evaluating():
        known = predictions.get("test") if epoch == epochs else None
        facts, images = evaluation.evaluate(known or evaluation.predict(setup.model, test), run)
        augmentation = settings.test_time_augmentation
        augmented = augmented_accuracies(setup.problem, setup.model, setup.evaluated, augmentation)
    (setup.folder / EVALUATION_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    summaries.write_run({**setup.request_fields, "precision": setup.precision}, images, setup.problem.units)
    clock.enter("saving")
    _logger.info("Saving the model.")
    save_model(setup)
    # The last steps, because benchmark and profile change the weights.
    clock.enter("measuring")
    times = measure(setup)
    clock.enter("profiling")
    if settings.profile_steps:
        _logger.info("Profiling %d training steps for TensorBoard.", settings.profile_steps)
        batches = setup.stream.training(0).take(min(settings.profile_steps, setup.stream.steps_per_epoch))
        with setup.placement.runtime.profile(setup.folder / TENSORBOARD_NAME):
            setup.model.fit(batches, shuffle=False, verbose=0)
    clock.enter("saving")
    times |= {f"{phase}_seconds": seconds for phase, seconds in clock.seconds().items()}
    ended = "epochs" if epochs == settings.epochs else "patience"
    return {**result_fields(setup, epoch), **augmented, "ended": ended, "time_breakdown": times}
