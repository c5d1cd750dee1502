"""Train: compile, fit and evaluate a network on the input stream (… → stream → **training** → run → report)."""

import logging
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import keras

from pipeline import hardware
from pipeline.artefacts.manifest import check_contents, read_manifest
from pipeline.config import TrainSettings
from pipeline.errors import HardwareMismatchError
from pipeline.networks import kind_of_outputs
from pipeline.problems.find import problem_of_records
from pipeline.runs.initial import InitialWeights
from pipeline.runs.metrics import METRICS_NAME, append_metrics
from pipeline.runs.record import (
    SCHEMA_VERSION,
    RunRecord,
    recorded_settings,
    write_record,
)
from pipeline.training import breakdown
from pipeline.training.checkpoint import (
    copied_variables,
    put_variables,
    restore_checkpoint,
    save_checkpoint,
)
from pipeline.training.computation import Computation, by_rule, compiled_model, warn_of_memory
from pipeline.training.initial import begin
from pipeline.training.inputs import open_streams
from pipeline.training.loop import run_epochs
from pipeline.training.recorded import belongs_to, data_facts, nothing_measured, outcome_of, segment, used_by
from pipeline.training.saved import save_network
from pipeline.training.selection import ended, kept_epoch
from pipeline.training.summaries import Summaries, profile

_logger = logging.getLogger(__name__)


def train(
    records_folder: Path,
    settings: TrainSettings,
    folder: Path,
    *,
    requested_dataset: str,
    fingerprint: str,
    checkpoints: Path,
    started: float | None = None,
    initial: InitialWeights | None = None,
    experiment: str = "",
    drawn: Path | None = None,
) -> RunRecord:
    """Train on published records; leaves record, metrics, evaluation, weights, model and TensorBoard logs.

    Args:
        records_folder: the records artefact; every file's sha256 is checked before the first step.
        settings: what to train, how and on what.
        folder: an empty folder for the run's files.
        requested_dataset: what the user asked for, where a stand-in may have been taken instead.
        fingerprint: the run's own, for its record.
        checkpoints: folder of the run's checkpoints; the run resumes from one that is there. It outlives a failure, and
            the caller removes it once the run is published.
        started: when the stage began, by time.perf_counter: the time before this call is then part of the breakdown.
        initial: the weights that the settings name.
        experiment: what the run belongs to, for its record; by default it is called as the dataset is.
        drawn: the seeded weights of a new network, where another backend drew them, see process.py.

    Returns:
        The run's record as it was written. Its status is "skipped", without figures, where the device is not there
        and ``on_mismatch`` is "skip".

    Raises:
        DamagedArtefactError: a shard is not what the manifest says.
        HardwareMismatchError: the requested device is not there.
        SettingsError: the batch does not fit the data or the replicas, or the network is for another problem.
    """
    clock = breakdown.Clock(time.perf_counter() if started is None else started)
    clock.enter("loading")
    manifest = read_manifest(records_folder)
    problem = problem_of_records(manifest)
    problem.check(settings)
    check_contents(records_folder, manifest)
    clock.enter("startup")
    about = {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "hostname": socket.gethostname(),
        "problem": problem.name,
        **data_facts(manifest, requested_dataset, problem),
        **recorded_settings(settings),
        "experiment": experiment or requested_dataset,
        **({"initial_weights_digest": initial.digest, "initial_run": initial.run} if initial else {}),
    }
    try:
        placement = hardware.place(settings)
    except HardwareMismatchError as error:
        if settings.on_mismatch != "skip":
            raise
        _logger.warning("SKIPPED: %s", error)
        return _finish(folder, {**nothing_measured(settings), **about, "mismatch": error.mismatch})
    breakdown.reset_peak_memory(placement.runtime)
    computation = by_rule(settings, placement)
    clock.enter("loading")
    stream, evaluated = open_streams(records_folder, manifest, settings, placement, computation)
    clock.enter("startup")
    receipt = hardware.write_receipt(settings, placement, computation.precision)
    _announce(settings, receipt, computation)
    outputs = kind_of_outputs(manifest, settings.model, computation.precision)
    steps = stream.steps_per_epoch
    mixed = bool(stream.augmentation and stream.augmentation.mixes)

    def begin_with(model: keras.Model) -> None:
        about["beginning"] = begin(model, settings, initial)

    model = compiled_model(
        manifest,
        settings,
        placement,
        computation,
        steps,
        outputs=outputs,
        labels_mixed=mixed,
        begin=begin_with,
        drawn=drawn,
    )
    warn_of_memory(model, settings.global_batch_size, placement)
    used = used_by(receipt, computation, stream)
    clock.enter("checkpoint")
    with placement.scope():
        history = restore_checkpoint(checkpoints, model, fingerprint=fingerprint, used=used)
    earlier, epochs_restored = tuple(history.segments), len(history.rows)
    if earlier:
        clock.add(history.seconds)
        _logger.info(
            "resuming after epoch %d/%d, trained on %s", epochs_restored, settings.epochs, earlier[-1].hostname
        )
    train_devices = placement.runtime.observe_training(model)
    with placement.explaining(), Summaries(folder) as summaries:
        for row in history.rows:
            _write_row(folder, summaries, row)

        def after_epoch(row: Mapping[str, float]) -> None:
            nonlocal receipt
            receipt = hardware.confirm(receipt, train_devices)
            history.segments = [*earlier, segment(receipt, epochs_restored + 1, len(history.rows))]
            history.seconds = clock.seconds()
            if settings.keep == "best" and kept_epoch(history.rows, "best") == len(history.rows):
                history.best = copied_variables(model)
            save_checkpoint(
                checkpoints, model, history, fingerprint=fingerprint, used=used, belongs_to=belongs_to(about)
            )
            _write_row(folder, summaries, row)

        found = run_epochs(
            model,
            stream,
            evaluated,
            history.rows,
            settings.epochs,
            clock,
            after_epoch,
            settings.patience,
            placement.evaluating,
        )
        clock.enter("evaluation")
        kept = kept_epoch(history.rows, settings.keep)
        if kept != len(history.rows):
            _logger.info("keeping the weights of epoch %d, the best on validation", kept)
            with placement.scope():
                put_variables(model, history.best)
            found = {}
        _logger.info("looking at the predictions for the test split")
        test = evaluated["val"]
        with placement.evaluating():
            shown = problem.evaluate(
                found.get("val") or problem.predict(model, test),
                model=model,
                settings=settings,
                streams={"train": stream, "test": test},
                manifest=manifest,
                folder=folder,
            )
        summaries.write_run({**about, "precision": computation.precision}, shown, problem.units)
    clock.enter("saving")
    _logger.info("saving the network")
    save_network(model, manifest, settings, computation.precision, folder)
    # Last, when nothing more is wanted of the model: timing its step trains it on, and so does the profiler.
    clock.enter("measuring")
    trained = len(history.rows) > epochs_restored
    step = breakdown.measure(
        model, stream, history.rows, history.compiling(), runtime=placement.runtime, trained=trained
    )
    clock.enter("profiling")
    if settings.profile_steps:
        _logger.info("tracing %d steps for TensorBoard", settings.profile_steps)
        profile(model, stream, folder, runtime=placement.runtime, steps=settings.profile_steps)
    clock.enter("saving")
    parts = {f"{part}_seconds": seconds for part, seconds in clock.seconds().items()}
    peak_device_bytes = placement.runtime.peak_device_bytes(placement.effective_device)
    outcome = outcome_of(receipt, history, model, stream, kept, peak_device_bytes)
    outcome |= {"kept_epoch": kept, "ended": ended(history.rows, settings.epochs)}
    restored = {"epochs_restored": epochs_restored, "time_breakdown": {**step, **parts}}
    if not trained:
        restored["finished_on"] = about["hostname"]
    return _finish(folder, {**about, **used, **outcome, **restored})


def _finish(folder: Path, facts: Mapping) -> RunRecord:
    record = RunRecord(**facts, finished_at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_record(folder, record)
    return record


def _write_row(folder: Path, summaries: Summaries, row: Mapping[str, float]) -> None:
    append_metrics(folder / METRICS_NAME, row)
    summaries.write_epoch(row)


def _announce(settings: TrainSettings, receipt: hardware.Receipt, computation: Computation) -> None:
    if receipt.mismatch:
        _logger.warning("FALLBACK to %s: %s", receipt.effective_device, receipt.mismatch["cause"])
    _logger.info(
        "training %s on %s (requested %s, %s; %s), %d replica(s), %s, XLA %s",
        *(settings.model, receipt.effective_device, settings.device),
        "verified" if receipt.device_verified else f"NOT verified: {'; '.join(receipt.doubts)}",
        *(receipt.device_name, receipt.num_replicas, computation.precision),
        "on" if computation.jit_compile else "off",
    )
