"""Train: compile, fit and evaluate a network on the input stream (… → stream → **training** → run → report)."""

import logging
import math
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import save_file

from pipeline import hardware
from pipeline.artefacts.manifest import check_contents, read_manifest
from pipeline.augmentation import Augmentation
from pipeline.config import TrainSettings, is_own, refuse, refuse_without_validation
from pipeline.errors import HardwareMismatchError
from pipeline.hardware import Placement
from pipeline.networks import (
    LOGITS,
    PROBABILITIES,
    build_network,
    kind_of_outputs,
    named_variables,
    trained_by_logits,
    untrained_copy,
)
from pipeline.networks.pooling import quicken
from pipeline.problems.find import problem_of_records
from pipeline.problems.problem import Problem, Task
from pipeline.runs import throughput
from pipeline.runs.initial import InitialWeights
from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, WEIGHTS_NAME, append_metrics
from pipeline.runs.record import (
    FINISHED,
    SCHEMA_VERSION,
    SKIPPED,
    RunRecord,
    Segment,
    StoredRecords,
    names,
    recorded_settings,
    seen_in,
    write_record,
)
from pipeline.stream import InputStream, Split
from pipeline.training import breakdown
from pipeline.training.checkpoint import (
    History,
    copied_variables,
    put_variables,
    restore_checkpoint,
    save_checkpoint,
)
from pipeline.training.computation import Computation, by_rule, compiled_model, warn_of_memory
from pipeline.training.initial import begin
from pipeline.training.loop import run_epochs
from pipeline.training.selection import ended, kept_epoch
from pipeline.training.summaries import Summaries, profile

EVALUATION_BATCH_SIZE = 1_000
# In a batch of the evaluation: a sequence has some for each of its tokens.
EVALUATION_OUTPUTS = 2**24
_TPU_CORE_EXAMPLES = 8
# Prefix of the figures → split. The first is Keras's name for what is evaluated after each epoch, as records have it.
_EVALUATED_SPLITS = {"val": "test", "validation": "validation"}

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
        **_data_facts(manifest, requested_dataset, problem),
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
        return _finish(folder, {**_nothing_measured(settings), **about, "mismatch": error.mismatch})
    breakdown.reset_peak_memory()
    computation = by_rule(settings, placement)
    clock.enter("loading")
    stream, evaluated = _streams(records_folder, manifest, settings, placement, computation)
    clock.enter("startup")
    receipt = hardware.write_receipt(settings, placement, computation.precision)
    _announce(settings, receipt, computation)
    outputs = kind_of_outputs(manifest, settings.model, computation.precision)
    steps = stream.steps_per_epoch
    mixed = bool(stream.augmentation and stream.augmentation.mixes)

    def begin_with(model: keras.Model) -> None:
        about["beginning"] = begin(model, settings, initial)
        if placement.effective_device == "cpu" and not computation.jit_compile:
            quicken(model)

    model = compiled_model(
        manifest,
        settings,
        placement.strategy,
        computation,
        steps,
        outputs=outputs,
        labels_mixed=mixed,
        begin=begin_with,
    )
    warn_of_memory(model, settings.global_batch_size, placement)
    used = _used(receipt, computation, stream)
    clock.enter("checkpoint")
    with placement.strategy.scope():
        history = restore_checkpoint(checkpoints, model, fingerprint=fingerprint, used=used)
    earlier, epochs_restored = tuple(history.segments), len(history.rows)
    if earlier:
        clock.add(history.seconds)
        _logger.info(
            "resuming after epoch %d/%d, trained on %s", epochs_restored, settings.epochs, earlier[-1].hostname
        )
    train_devices = hardware.observe_training(model)
    with hardware.explaining(placement), Summaries(folder) as summaries:
        for row in history.rows:
            _write_row(folder, summaries, row)

        def after_epoch(row: Mapping[str, float]) -> None:
            nonlocal receipt
            receipt = hardware.confirm(receipt, train_devices)
            history.segments = [*earlier, _segment(receipt, epochs_restored + 1, len(history.rows))]
            history.seconds = clock.seconds()
            if settings.keep == "best" and kept_epoch(history.rows, "best") == len(history.rows):
                history.best = copied_variables(model)
            save_checkpoint(checkpoints, model, history, fingerprint=fingerprint, used=used)
            _write_row(folder, summaries, row)

        found = run_epochs(
            model, stream, evaluated, history.rows, settings.epochs, clock, after_epoch, settings.patience
        )
        clock.enter("evaluation")
        kept = kept_epoch(history.rows, settings.keep)
        if kept != len(history.rows):
            _logger.info("keeping the weights of epoch %d, the best on validation", kept)
            with placement.strategy.scope():
                put_variables(model, history.best)
            found = {}
        _logger.info("looking at the predictions for the test split")
        test = evaluated["val"]
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
    _save(model, manifest, settings, computation.precision, folder)
    # Last, when nothing more is wanted of the model: timing its step trains it on, and so does the profiler.
    clock.enter("measuring")
    trained = len(history.rows) > epochs_restored
    step = breakdown.measure(model, stream, history.rows, history.compiling(), trained=trained)
    clock.enter("profiling")
    if settings.profile_steps:
        _logger.info("tracing %d steps for TensorBoard", settings.profile_steps)
        profile(model, stream, folder, steps=settings.profile_steps)
    clock.enter("saving")
    parts = {f"{part}_seconds": seconds for part, seconds in clock.seconds().items()}
    outcome = _outcome(receipt, history, model, stream, kept)
    outcome |= {"kept_epoch": kept, "ended": ended(history.rows, settings.epochs)}
    restored = {"epochs_restored": epochs_restored, "time_breakdown": {**step, **parts}}
    if not trained:
        restored["finished_on"] = about["hostname"]
    return _finish(folder, {**about, **used, **outcome, **restored})


def _finish(folder: Path, facts: Mapping) -> RunRecord:
    record = RunRecord(**facts, finished_at=datetime.now(UTC).isoformat(timespec="seconds"))
    write_record(folder, record)
    return record


def _nothing_measured(settings: TrainSettings) -> dict:
    """What a run that did not take place has to say of itself: nothing."""
    return {
        **dict.fromkeys(names("measured")),
        "epochs_restored": 0,
        "status": SKIPPED,
        "effective_device": "none",
        "device_verified": False,
        "device_name": None,
        "num_replicas": 0,
        "precision": settings.precision,
        "jit_compile": False,
    }


def _used(receipt: hardware.Receipt, computation: Computation, stream: InputStream) -> dict:
    """Hardware and computation: fields of the record, and what a process must share to resume from a checkpoint."""
    return {
        "effective_device": receipt.effective_device,
        "device_name": receipt.device_name,
        "num_replicas": receipt.num_replicas,
        "precision": computation.precision,
        "jit_compile": computation.jit_compile,
        # From memory and from disk an epoch has another order.
        "input_in_memory": stream.in_memory,
    }


def _segment(receipt: hardware.Receipt, first_epoch: int, last_epoch: int) -> Segment:
    return Segment(
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        hostname=socket.gethostname(),
        device_verified=receipt.device_verified,
        receipt=receipt.to_json(),
    )


def _streams(
    folder: Path, manifest: Mapping, settings: TrainSettings, placement: Placement, computation: Computation
) -> tuple[InputStream, dict[str, InputStream]]:
    """The stream to train on, and by the prefix of their figures those to evaluate on."""
    refuse_without_validation(settings, manifest["splits"])
    train = Split.of_manifest(folder, manifest, "train")
    size, replicas = settings.global_batch_size, placement.num_replicas
    if size > train.num_examples:
        refuse("Train", "global_batch_size", f"at most the {train.num_examples} examples of the train split", size)
    if size % replicas:
        refuse("Train", "global_batch_size", f"a multiple of the {replicas} replicas", size)
    if placement.effective_device == "tpu" and size // replicas < _TPU_CORE_EXAMPLES:
        _logger.warning(
            "[Train] global_batch_size: %d over %d TPU cores are %d examples a core; fewer than %d leave it idle, 128 "
            "suit it best: %d",
            *(size, replicas, size // replicas, _TPU_CORE_EXAMPLES, 128 * replicas),
        )
    stream = InputStream(
        train,
        global_batch_size=size,
        seed=settings.seed,
        in_memory=computation.in_memory,
        augmentation=_augmentation(settings, train),
    )
    task = train.problem.task(manifest)
    held_out = {prefix: name for prefix, name in _EVALUATED_SPLITS.items() if name in manifest["splits"]}
    return stream, {
        prefix: _evaluation_stream(Split.of_manifest(folder, manifest, name), task, replicas, settings.seed)
        for prefix, name in held_out.items()
    }


def _augmentation(settings: TrainSettings, split: Split) -> Augmentation | None:
    if not settings.augment:
        return None
    return Augmentation(settings.augment, seed=settings.seed, image_shape=split.content_shape)


def _evaluation_stream(split: Split, task: Task, replicas: int, seed: int) -> InputStream:
    most = max(1, min(EVALUATION_BATCH_SIZE, EVALUATION_OUTPUTS // math.prod(task.output_shape), split.num_examples))
    # Keras adds up the replicas' shares of the first batch to learn its shape: they must be alike.
    size = max(1, most // replicas) * replicas
    return InputStream(split, global_batch_size=size, seed=seed)


def _write_row(folder: Path, summaries: Summaries, row: Mapping[str, float]) -> None:
    append_metrics(folder / METRICS_NAME, row)
    summaries.write_epoch(row)


def _save(model: keras.Model, manifest: Mapping, settings: TrainSettings, precision: str, folder: Path) -> None:
    save_file(named_weights(model), folder / WEIGHTS_NAME)
    # Saved without its optimizer: the file loads in any Keras without this project's classes, and holds no schedule.
    if is_own(settings.model):
        # Not built anew: layers without a name of their own would be called otherwise than those that were trained.
        trained = untrained_copy(model, problem_of_records(manifest).task(manifest).input_shape)
    else:
        trained = build_network(manifest, settings.model, precision)
    trained.set_weights(model.get_weights())
    trained.save(folder / MODEL_NAME)


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Layer and variable name → float32 array; the names are the same in a model that was saved and loaded."""
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in named_variables(model).items()}


def _data_facts(manifest: Mapping, requested_dataset: str, problem: Problem) -> dict:
    predictions = problem.task(manifest).predictions_per_example
    return {
        "requested_dataset": requested_dataset,
        "dataset": manifest["source"]["dataset"],
        "dataset_verified": manifest["dataset_verified"],
        "content_digests": {name: split["content_digest"] for name, split in manifest["splits"].items()},
        "records_fingerprint": manifest["fingerprint"],
        "records": StoredRecords.of_manifest(manifest),
        "test_examples": manifest["splits"]["test"]["num_examples"] * predictions,
    }


def _outcome(receipt: hardware.Receipt, history: History, model: keras.Model, stream: InputStream, kept: int) -> dict:
    """What came of a run that finished, and the evidence of all processes that trained it."""
    rows, predictions = history.rows, stream.predictions_per_epoch
    rate = throughput.examples_per_second(rows, history.compiling(), examples_per_epoch=predictions)
    # Not this process, where no epoch was left to it: what it saw of its own machine trained nothing.
    last = history.segments[-1]
    return {
        "status": FINISHED,
        "hostname": last.hostname,
        "device_verified": all(one.device_verified for one in history.segments),
        "device_reason": last.receipt["device_reason"],
        "mismatch": receipt.mismatch,
        "receipt": last.receipt,
        **seen_in(last.receipt),
        "segments": tuple(history.segments),
        "outputs": LOGITS if trained_by_logits(model) else PROBABILITIES,
        "steps_per_execution": model.steps_per_execution,
        "steps_per_epoch": stream.steps_per_epoch,
        "train_seconds": round(sum(row["train_seconds"] for row in rows), 4),
        "evaluation_seconds": round(sum(row["evaluation_seconds"] for row in rows), 4),
        "first_epoch_seconds": rows[0]["train_seconds"],
        "examples_per_second": round(rate, 1),
        **{name: value for name, value in rows[kept - 1].items() if name.startswith(tuple(_EVALUATED_SPLITS))},
        "peak_host_bytes": breakdown.peak_host_bytes(),
        "peak_device_bytes": breakdown.peak_device_bytes(receipt.effective_device),
    }


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
