"""Training: compile, fit and evaluate a network on the input stream (… → stream → training → metrics → report).

``fit`` is called once an epoch, each time with that epoch's own finite stream: training and evaluation are timed apart
without guessing from callbacks, the last steps of an epoch are never run twice however many steps one execution takes,
and what an epoch sees depends on (seed, epoch) alone.
"""

import logging
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import save_file

from pipeline import hardware, progress
from pipeline.artefacts.manifest import check_contents, read_manifest
from pipeline.config import TrainSettings, refuse
from pipeline.errors import HardwareMismatchError
from pipeline.hardware import Placement
from pipeline.metrics import METRICS_NAME, MODEL_NAME, append_metrics
from pipeline.runs.record import (
    FINISHED,
    SCHEMA_VERSION,
    SKIPPED,
    RunRecord,
    Segment,
    names,
    recorded_settings,
    seen_in,
    write_record,
)
from pipeline.stream import InputStream, Split
from pipeline.training import breakdown
from pipeline.training.checkpoint import restore_checkpoint, save_checkpoint
from pipeline.training.computation import Computation, build, by_rule, compiled_model
from pipeline.training.evaluation import evaluate
from pipeline.training.summaries import Summaries, profile

WEIGHTS_NAME = "weights.safetensors"

EVALUATION_BATCH_SIZE = 1_000
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
) -> RunRecord:
    """Train on published records; leaves record, metrics, evaluation, weights, model and TensorBoard logs.

    Args:
        records_folder: the records artefact; every file's sha256 is checked before the first step.
        settings: what to train, how and on what.
        folder: an empty folder for the run's files.
        requested_dataset: what the user asked for, where a stand-in may have been taken instead.
        fingerprint: the run's own, for its record.
        checkpoints: folder of the run's checkpoints; one that is there is gone on from. It outlives a failure, and the
            caller removes it once the run is published.

    Returns:
        The run's record as it was written. Its status is "skipped", without figures, where the device is not there
        and ``on_mismatch`` is "skip".

    Raises:
        DamagedArtefactError: a shard is not what the manifest says.
        HardwareMismatchError: the requested device is not there.
        SettingsError: the batch does not fit the data or the replicas.
    """
    manifest = read_manifest(records_folder)
    check_contents(records_folder, manifest)
    about = {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": fingerprint,
        "hostname": socket.gethostname(),
        **_data_facts(manifest, requested_dataset),
        **recorded_settings(settings),
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
    stream, evaluated = _streams(records_folder, manifest, settings, placement, computation)
    receipt = hardware.write_receipt(settings, placement, computation.precision)
    _announce(settings, receipt, computation)
    model = compiled_model(manifest, settings, placement.strategy, computation, stream.steps_per_epoch)
    with placement.strategy.scope():
        rows = restore_checkpoint(checkpoints, model, fingerprint=fingerprint)
    epochs_restored = len(rows)
    if rows:
        _logger.info("going on after epoch %d/%d, from a checkpoint", len(rows), settings.epochs)
    train_devices = hardware.observe_training(model)
    checkpoint_seconds: list[float] = []

    def after_epoch() -> None:
        started = time.perf_counter()
        save_checkpoint(checkpoints, model, rows, fingerprint=fingerprint)
        checkpoint_seconds.append(time.perf_counter() - started)

    with hardware.explaining(placement), Summaries(folder) as summaries:
        _run_epochs(model, stream, evaluated, settings.epochs, folder, rows, after_epoch, summaries)
        facts, tiles = evaluate(model, evaluated["val"], manifest, folder)
        summaries.write_run({**about, "precision": computation.precision}, _named(facts), tiles)
    _save(model, manifest, settings, computation.precision, folder)
    # Last, when nothing more is wanted of the model: timing its step trains it on, and so does the profiler.
    time_breakdown = breakdown.measure(model, stream, rows, checkpoint_seconds)
    receipt = hardware.confirm(receipt, train_devices)
    if settings.profile_steps:
        profile(model, stream, folder, steps=settings.profile_steps)
    return _finish(
        folder,
        {
            **about,
            "status": FINISHED,
            "effective_device": receipt.effective_device,
            "device_verified": receipt.device_verified,
            "device_name": receipt.device_name,
            "num_replicas": receipt.num_replicas,
            "precision": computation.precision,
            "jit_compile": computation.jit_compile,
            "steps_per_execution": model.steps_per_execution,
            "mismatch": receipt.mismatch,
            "receipt": receipt.to_json(),
            **seen_in(receipt.to_json()),
            "segments": (_segment(receipt, first_epoch=epochs_restored + 1, last_epoch=len(rows)),),
            **_summary(rows, stream),
            "epochs_restored": epochs_restored,
            "time_breakdown": time_breakdown,
            "peak_host_bytes": breakdown.peak_host_bytes(),
            "peak_device_bytes": breakdown.peak_device_bytes(receipt.effective_device),
        },
    )


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


def _segment(receipt: hardware.Receipt, *, first_epoch: int, last_epoch: int) -> Segment:
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
    stream = InputStream(train, global_batch_size=size, seed=settings.seed, in_memory=computation.in_memory)
    held_out = {prefix: name for prefix, name in _EVALUATED_SPLITS.items() if name in manifest["splits"]}
    return stream, {
        prefix: _evaluation_stream(Split.of_manifest(folder, manifest, name), replicas, settings.seed)
        for prefix, name in held_out.items()
    }


def _evaluation_stream(split: Split, replicas: int, seed: int) -> InputStream:
    # Keras adds up the replicas' shares of the first batch to learn its shape: they must be alike.
    size = max(1, min(EVALUATION_BATCH_SIZE, split.num_examples) // replicas) * replicas
    return InputStream(split, global_batch_size=size, seed=seed)


def _run_epochs(
    model: keras.Model,
    stream: InputStream,
    evaluated: Mapping[str, InputStream],
    epochs: int,
    folder: Path,
    rows: list[dict[str, float]],
    after_epoch: Callable[[], None],
    summaries: Summaries,
) -> None:
    """Run the epochs that ``rows`` does not have yet, adding a row for each; write all rows to the run's folder."""
    for row in rows:
        _write_row(folder, summaries, row)
    for epoch in range(len(rows), epochs):
        rows.append(_run_epoch(model, stream, evaluated, epoch, epochs))
        after_epoch()
        _write_row(folder, summaries, rows[-1])
        _report_progress(rows, epochs)


def _write_row(folder: Path, summaries: Summaries, row: Mapping[str, float]) -> None:
    append_metrics(folder / METRICS_NAME, row)
    summaries.write_epoch(row)


def _run_epoch(
    model: keras.Model, stream: InputStream, evaluated: Mapping[str, InputStream], epoch: int, epochs: int
) -> dict[str, float]:
    started = time.perf_counter()
    how = {"initial_epoch": epoch, "epochs": epoch + 1, "shuffle": False, "verbose": 0}
    how["callbacks"] = [_Progress(epoch, epochs, stream)]
    history = model.fit(stream.training(epoch), **how).history
    trained = time.perf_counter()
    figures = {
        prefix: model.evaluate(held_out.evaluation(), verbose=0, return_dict=True)
        for prefix, held_out in evaluated.items()
    }
    train_seconds = trained - started
    return {
        "epoch": epoch + 1,
        "loss": history["loss"][-1],
        "accuracy": history["accuracy"][-1],
        **{f"{prefix}_{name}": found[name] for prefix, found in figures.items() for name in ("loss", "accuracy")},
        "train_seconds": round(train_seconds, 4),
        "evaluation_seconds": round(time.perf_counter() - trained, 4),
        "examples_per_second": round(stream.steps_per_epoch * stream.global_batch_size / train_seconds, 1),
        "learning_rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
    }


class _Progress(keras.callbacks.Callback):
    """Tells of the images trained on, of all epochs', after each execution of several steps."""

    def __init__(self, epoch: int, epochs: int, stream: InputStream) -> None:
        super().__init__()
        self._what, self._batch_size = f"epoch {epoch + 1}/{epochs}", stream.global_batch_size
        of_an_epoch = stream.steps_per_epoch * stream.global_batch_size
        self._before, self._total = epoch * of_an_epoch, epochs * of_an_epoch

    def on_train_batch_end(self, batch: int, logs: Mapping | None = None) -> None:
        progress.tell(self._what, self._before + (batch + 1) * self._batch_size, self._total)


def _report_progress(rows: list[dict[str, float]], epochs: int) -> None:
    row, left = rows[-1], epochs - len(rows)
    # The first epoch compiles: judge what is left by the newest.
    seconds_left = left * (row["train_seconds"] + row["evaluation_seconds"])
    _logger.info(
        "epoch %d/%d: %.1f s, %s images/s, accuracy %.4f, test accuracy %.4f, %s",
        *(row["epoch"], epochs, row["train_seconds"], f"{row['examples_per_second']:,.0f}"),
        *(row["accuracy"], row["val_accuracy"], f"{seconds_left:.0f} s left" if left else "done"),
    )


def _named(facts: Mapping) -> list[dict]:
    """The mistakes with the labels' names for their numbers."""
    names = facts["label_names"]
    return [
        {"label": names[one["label"]], "predicted": names[one["predicted"]], "confidence": one["confidence"]}
        for one in facts["mistakes"]
    ]


def _save(model: keras.Model, manifest: Mapping, settings: TrainSettings, precision: str, folder: Path) -> None:
    save_file(named_weights(model), folder / WEIGHTS_NAME)
    # Saved without its optimizer: the file loads in any Keras without this project's classes, and holds no schedule.
    trained = build(manifest, settings.model, precision)
    trained.set_weights(model.get_weights())
    trained.save(folder / MODEL_NAME)


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Layer and variable name → float32 array; the names are the same in a model that was saved and loaded."""
    return {
        f"{layer.name}/{weight.name}": keras.ops.convert_to_numpy(weight)
        for layer in model.layers
        for weight in layer.weights
    }


def _data_facts(manifest: Mapping, requested_dataset: str) -> dict:
    return {
        "requested_dataset": requested_dataset,
        "dataset": manifest["source"]["dataset"],
        "dataset_verified": manifest["dataset_verified"],
        "content_digests": {name: split["content_digest"] for name, split in manifest["splits"].items()},
        "records_fingerprint": manifest["fingerprint"],
    }


def _summary(rows: list[dict[str, float]], stream: InputStream) -> dict:
    timed = rows[1:] or rows
    examples = stream.steps_per_epoch * stream.global_batch_size * len(timed)
    return {
        "steps_per_epoch": stream.steps_per_epoch,
        "input_in_memory": stream.in_memory,
        "train_seconds": round(sum(row["train_seconds"] for row in rows), 4),
        "evaluation_seconds": round(sum(row["evaluation_seconds"] for row in rows), 4),
        "first_epoch_seconds": rows[0]["train_seconds"],
        "examples_per_second": round(examples / sum(row["train_seconds"] for row in timed), 1),
        **{name: value for name, value in rows[-1].items() if name.startswith(tuple(_EVALUATED_SPLITS))},
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
