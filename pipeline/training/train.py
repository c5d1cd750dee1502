"""Train: compile, fit and evaluate a network on the input stream (… → stream → **training** → run → report)."""

import logging
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import keras

from pipeline.artefacts.manifest import check_contents, read_manifest
from pipeline.artefacts.space import require_space
from pipeline.config.training import TrainSettings
from pipeline.errors import HardwareMismatchError
from pipeline.hardware.placement import Placement, place
from pipeline.hardware.receipt import Receipt, confirm, seen_here, with_processes, write_receipt
from pipeline.networks.build import kind_of_outputs
from pipeline.networks.cpu_kernels import as_keras
from pipeline.problems.find import problem_of_records
from pipeline.problems.problem import Shown
from pipeline.runs.metrics import METRICS_NAME, append_metrics
from pipeline.runs.record import (
    SCHEMA_VERSION,
    RunRecord,
    recorded_settings,
    write_record,
)
from pipeline.stream import InputStream
from pipeline.training import breakdown, words
from pipeline.training.checkpoint import (
    History,
    bytes_needed,
    copied_variables,
    put_variables,
    restore_checkpoint,
    save_checkpoint,
)
from pipeline.training.computation import Computation, by_rule, compiled_model, warn_of_memory
from pipeline.training.initial import begin
from pipeline.training.inputs import open_streams
from pipeline.training.loop import run_epochs
from pipeline.training.process_group import ProcessGroup, join, leave
from pipeline.training.recorded import belongs_to, data_facts, nothing_measured, outcome_of, segment, used_by
from pipeline.training.request import TrainRequest
from pipeline.training.saved import save_network
from pipeline.training.selection import best_epoch, ended, kept_epoch
from pipeline.training.summaries import Summaries, profile

# Labels that the log lists.
_MOST_LABELS = 20

_logger = logging.getLogger(__name__)


def train(request: TrainRequest, folder: Path) -> RunRecord:
    """Train on published records; leaves record, metrics, evaluation, weights, model and TensorBoard logs.

    Args:
        request: what to train. Every file's sha256 of its records is checked before the first step. Its checkpoints
            outlive a failure, and the caller removes them once the run is published. Only those of process 0 count.
        folder: an empty folder for the run's files.

    Returns:
        The run's record as it was written. Its status is "skipped", without figures, where the device is not there
        and ``on_mismatch`` is "skip".

    Raises:
        DamagedArtefactError: a shard is not what the manifest says.
        HardwareMismatchError: the requested device is not there.
        StorageError: the disk has not the space that checkpoints and network take.
        SettingsError: the batch does not fit the data or the replicas, the network is for another problem, or the
            processes cannot train together.
    """
    group = join(request.membership, timeout_seconds=request.settings.join_timeout_seconds)
    record = _train(request, folder, group)
    leave(group)
    return record


def _train(request: TrainRequest, folder: Path, group: ProcessGroup) -> RunRecord:
    records_folder, settings, initial = request.records, request.settings, request.initial
    fingerprint, checkpoints, started = request.fingerprint, request.checkpoints, request.started
    clock = breakdown.Clock(time.perf_counter() if started is None else started)
    clock.enter("loading")
    manifest = read_manifest(records_folder)
    problem = problem_of_records(manifest)
    problem.check(settings)
    check_contents(records_folder, manifest)
    if manifest.get("image"):
        counts = manifest["splits"]["train"]["label_counts"]
        _logger.info(words.numbered_labels([*counts], [*counts.values()], _MOST_LABELS))
    clock.enter("startup")
    about = {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "hostname": socket.gethostname(),
        "problem": problem.name,
        **data_facts(manifest, request.requested_dataset, problem),
        **recorded_settings(settings),
        "experiment": request.experiment or request.requested_dataset,
        **({"initial_weights_digest": initial.digest, "initial_run": initial.run} if initial else {}),
    }
    try:
        placement = place(settings)
    except HardwareMismatchError as error:
        if settings.on_mismatch != "skip":
            raise
        _logger.warning("SKIPPED: %s", error)
        return _finish(folder, {**nothing_measured(settings), **about, "mismatch": error.mismatch})
    ready = _make_ready(request, manifest, placement, about, clock, folder, group)
    clock.enter("checkpoint")
    with placement.scope():
        history = restore_checkpoint(checkpoints, ready.model, fingerprint=fingerprint, used=ready.used_by_chief())
    epochs_restored = len(history.rows)
    group.check_equal(words.THE_CHECKPOINT, f"epoch {epochs_restored}")
    if epochs_restored:
        clock.add(history.seconds)
    if group.is_chief:
        require_space(folder.parent, bytes_needed(ready.model, checkpoints, keep_best=settings.keep == "best"))
    with placement.explaining(), Summaries(folder) as summaries:
        found = _run_epochs(ready, history, clock, checkpoints, summaries)
        clock.enter("evaluation")
        kept = _keep_epoch(ready, history)
        shown = _look_at_predictions(ready, found.get("val") if kept == len(history.rows) else None)
        seen_again = _with_test_time_augmentation(ready)
        summaries.write_run({**about, "precision": ready.computation.precision}, shown, problem.units)
    clock.enter("saving")
    _logger.info("saving the network")
    save_network(ready.model, manifest, settings, ready.computation.precision, folder)
    # Last, when nothing more is wanted of the model: timing its step trains it on, and so does the profiler.
    trained = len(history.rows) > epochs_restored
    times = _time_parts(ready, history, clock, trained=trained)
    peak_device_bytes = placement.runtime.peak_device_bytes(placement.effective_device)
    outcome = outcome_of(ready.receipt, history, ready.model, ready.stream, kept, peak_device_bytes)
    outcome |= seen_again | {"kept_epoch": kept, "ended": ended(history.rows, settings.epochs)}
    outcome |= {"epochs_restored": epochs_restored, "time_breakdown": times}
    if not trained:
        outcome["finished_on"] = about["hostname"]
    return _finish(folder, {**about, **ready.used(), **outcome})


@dataclass
class _Ready:
    """All that a training needs for its first step.

    ``folder`` is for the run's files, ``about`` are fields of its record that are known before that step, ``manifest``
    is the records'; ``evaluated`` is prefix of figures → what they are of; training confirms the ``receipt``.
    """

    folder: Path
    settings: TrainSettings
    manifest: Mapping
    group: ProcessGroup
    about: Mapping
    placement: Placement
    computation: Computation
    receipt: Receipt
    stream: InputStream
    evaluated: Mapping[str, InputStream]
    model: keras.Model

    def used(self) -> dict:
        """Hardware and computation, as fields of the record."""
        return used_by(self.receipt, self.computation, self.stream)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The context that the model is evaluated in: as Keras computes what will be saved of it."""
        with self.placement.evaluating(), as_keras():
            yield

    def used_by_chief(self) -> dict:
        """The same of the process that writes the checkpoints: the hosts of several need not be alike."""
        return self.group.from_chief(self.used())


def _make_ready(
    request: TrainRequest,
    manifest: Mapping,
    placement: Placement,
    about: dict,
    clock: breakdown.Clock,
    folder: Path,
    group: ProcessGroup,
) -> _Ready:
    """Open the streams, write the receipt and compile the network; ``about`` is told what it begins with."""
    settings = request.settings
    breakdown.reset_peak_memory(placement.runtime)
    computation = by_rule(settings, placement)
    clock.enter("loading")
    stream, evaluated = open_streams(request.records, manifest, settings, placement, computation, group)
    clock.enter("startup")
    receipt = write_receipt(settings, placement, computation.precision)
    if group.processes > 1:
        receipt = with_processes(receipt, group.gather(seen_here(receipt)))
        share = f"{len(receipt.logical_devices)} {receipt.effective_device}, {computation.precision}"
        group.check_equal(words.THE_DEVICES, share)
    _announce(settings, receipt, computation)

    def begin_with(model: keras.Model) -> None:
        about["beginning"] = begin(model, settings, request.initial, stream)

    model = compiled_model(
        manifest,
        settings,
        placement,
        computation,
        stream.steps_per_epoch,
        outputs=kind_of_outputs(manifest, settings.model, computation.precision),
        labels_mixed=bool(stream.augmentation and stream.augmentation.mixes),
        begin=begin_with,
        drawn=request.drawn,
    )
    warn_of_memory(model, settings.global_batch_size, placement)
    return _Ready(folder, settings, manifest, group, about, placement, computation, receipt, stream, evaluated, model)


def _run_epochs(
    ready: _Ready, history: History, clock: breakdown.Clock, checkpoints: Path, summaries: Summaries
) -> dict[str, Any]:
    """Train the epochs that the history does not have yet; what run_epochs gives."""
    settings, model, used = ready.settings, ready.model, ready.used()
    chosen_by = ready.stream.split.problem.chosen_by
    earlier, epochs_restored = tuple(history.segments), len(history.rows)
    if earlier:
        _logger.info(
            "resuming after epoch %d/%d, trained on %s", epochs_restored, settings.epochs, earlier[-1].hostname
        )
    train_devices = ready.placement.runtime.observe_training(model)
    for row in history.rows:
        _write_row(ready.folder, summaries, row)

    def after_epoch(row: dict[str, float]) -> None:
        # What training is steered by, were it only to end for want of patience, is one for all.
        row.update(ready.group.from_chief(row))
        ready.receipt = confirm(ready.receipt, train_devices)
        history.segments = [*earlier, segment(ready.receipt, epochs_restored + 1, len(history.rows))]
        history.seconds = clock.seconds()
        if settings.keep == "best" and best_epoch(history.rows, chosen_by) == len(history.rows):
            history.best = copied_variables(model)
        if ready.group.is_chief:
            fingerprint, whose = ready.about["fingerprint"], belongs_to(ready.about)
            save_checkpoint(checkpoints, model, history, fingerprint=fingerprint, used=used, belongs_to=whose)
        _write_row(ready.folder, summaries, row)

    return run_epochs(
        model,
        ready.stream,
        ready.evaluated,
        history.rows,
        settings.epochs,
        clock,
        after_epoch,
        settings.patience,
        ready.evaluating,
    )


def _keep_epoch(ready: _Ready, history: History) -> int:
    """Give the model the weights of the epoch that the settings keep; which one that is."""
    kept = kept_epoch(history.rows, ready.settings.keep, ready.stream.split.problem.chosen_by)
    if kept != len(history.rows):
        _logger.info("keeping the weights of epoch %d, the best on validation", kept)
        with ready.placement.scope():
            put_variables(ready.model, history.best)
    return kept


def _look_at_predictions(ready: _Ready, predictions: Any) -> Shown:
    """Evaluate the network on the test split, by its ``predictions`` where they are there already."""
    _logger.info("looking at the predictions for the test split")
    test = ready.evaluated["val"]
    problem = test.split.problem
    with ready.evaluating():
        return problem.evaluate(
            predictions or problem.predict(ready.model, test),
            model=ready.model,
            settings=ready.settings,
            streams={"train": ready.stream, "test": test},
            manifest=ready.manifest,
            folder=ready.folder,
        )


def _with_test_time_augmentation(ready: _Ready) -> dict[str, float]:
    """The accuracy of the network kept where it sees each image several times, as fields of the record."""
    how = ready.settings.test_time_augmentation
    if how == "none":
        return {}
    problem = ready.stream.split.problem
    _logger.info("evaluating with test-time augmentation: %s", how)
    with ready.evaluating():
        found = {name: problem.predict(ready.model, split, how) for name, split in ready.evaluated.items()}
        accuracies = {name: problem.figures(ready.model, one)["accuracy"] for name, one in found.items()}
    _logger.info("%s", words.with_test_time_augmentation(accuracies))
    return {f"{name}_tta_accuracy": accuracy for name, accuracy in accuracies.items()}


def _time_parts(ready: _Ready, history: History, clock: breakdown.Clock, *, trained: bool) -> dict:
    """The time breakdown; traces a few steps as well where the settings ask for it."""
    runtime, steps = ready.placement.runtime, ready.settings.profile_steps
    clock.enter("measuring")
    step = breakdown.measure(
        ready.model,
        ready.stream,
        history.rows,
        history.compiling(),
        runtime=runtime,
        trained=trained,
        processes=ready.group.processes,
    )
    clock.enter("profiling")
    if steps:
        _logger.info("tracing %d steps for TensorBoard", steps)
        profile(ready.model, ready.stream, ready.folder, runtime=runtime, steps=steps)
    clock.enter("saving")
    return step | {f"{part}_seconds": seconds for part, seconds in clock.seconds().items()}


def _finish(folder: Path, facts: Mapping) -> RunRecord:
    record = RunRecord(**facts, finished_at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_record(folder, record)
    return record


def _write_row(folder: Path, summaries: Summaries, row: Mapping[str, float]) -> None:
    append_metrics(folder / METRICS_NAME, row)
    summaries.write_epoch(row)


def _announce(settings: TrainSettings, receipt: Receipt, computation: Computation) -> None:
    if receipt.mismatch:
        _logger.warning("FALLBACK to %s: %s", receipt.effective_device, receipt.mismatch["cause"])
    _logger.info(
        "training %s on %s (requested %s, %s; %s), %d replica(s), %s, XLA %s",
        *(settings.model, receipt.effective_device, settings.device),
        "verified" if receipt.device_verified else f"NOT verified: {'; '.join(receipt.doubts)}",
        *(receipt.device_name, receipt.num_replicas, computation.precision),
        "on" if computation.jit_compile else "off",
    )
