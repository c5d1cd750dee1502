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
import tensorflow as tf
from safetensors.numpy import save_file

from pipeline import hardware
from pipeline.checkpoint import restore_checkpoint, save_checkpoint
from pipeline.config import TrainSettings, refuse
from pipeline.errors import SettingsError
from pipeline.hardware import Placement
from pipeline.manifest import check_contents, read_manifest
from pipeline.metrics import METRICS_NAME, RECORD_NAME, append_metrics, write_record
from pipeline.models import build_model
from pipeline.stream import InputStream, Split

MODEL_NAME = "model.keras"
WEIGHTS_NAME = "weights.safetensors"
TENSORBOARD_NAME = "tensorboard"

# Large enough that the cost of calling an execution vanishes, small enough that Ctrl-C is answered in a second.
STEPS_PER_EXECUTION = 32
EVALUATION_BATCH_SIZE = 1_000

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
_logger = logging.getLogger(__name__)


def train(
    records_folder: Path,
    settings: TrainSettings,
    folder: Path,
    *,
    requested_dataset: str,
    fingerprint: str,
    checkpoints: Path,
) -> dict:
    """Train on published records; leaves record, metrics, weights, model and TensorBoard logs in ``folder``.

    Args:
        records_folder: the records artefact; every file's sha256 is checked before the first step.
        settings: what to train, how and on what.
        folder: an empty folder for the run's files.
        requested_dataset: what the user asked for, where a stand-in may have been taken instead.
        fingerprint: the run's own, for its record.
        checkpoints: folder of the run's checkpoints; one that is there is gone on from. It outlives a failure, and the
            caller removes it once the run is published.

    Returns:
        The run's record as it was written, plain JSON data; times in seconds, accuracies as fractions.

    Raises:
        DamagedArtefactError: a shard is not what the manifest says.
        HardwareMismatchError: the requested device is not there.
        SettingsError: the batch does not fit the data or the replicas.
    """
    manifest = read_manifest(records_folder)
    check_contents(records_folder, manifest)
    placement = hardware.place(settings.device)
    stream, test = _streams(records_folder, manifest, settings, placement)
    precision = hardware.choose_precision(settings.precision, placement)
    jit_compile = hardware.choose_jit_compile(settings.jit_compile, placement)
    _announce(settings, placement, precision, jit_compile)
    model = _compiled_model(manifest, settings, placement, precision, jit_compile, stream.steps_per_epoch)
    with placement.strategy.scope():
        rows = restore_checkpoint(checkpoints, model, fingerprint=fingerprint)
    epochs_restored = len(rows)
    if rows:
        _logger.info("going on after epoch %d/%d, from a checkpoint", len(rows), settings.epochs)

    def after_epoch() -> None:
        save_checkpoint(checkpoints, model, rows, fingerprint=fingerprint)

    _run_epochs(model, stream, test, settings.epochs, folder, rows, after_epoch)
    _save(model, manifest, settings, precision, folder)
    record = {
        "fingerprint": fingerprint,
        **_data_facts(manifest, requested_dataset),
        **_hardware_facts(settings, placement, precision, jit_compile),
        **{name: getattr(settings, name) for name in ("model", "recipe", "global_batch_size", "epochs", "seed")},
        **_summary(rows, stream),
        "epochs_restored": epochs_restored,
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_record(folder / RECORD_NAME, record)
    return record


def _streams(
    folder: Path, manifest: Mapping, settings: TrainSettings, placement: Placement
) -> tuple[InputStream, InputStream]:
    train, test = (Split.of_manifest(folder, manifest, name) for name in ("train", "test"))
    size, replicas = settings.global_batch_size, placement.num_replicas
    if size > train.num_examples:
        refuse("Train", "global_batch_size", f"at most the {train.num_examples} examples of the train split", size)
    if size % replicas:
        refuse("Train", "global_batch_size", f"a multiple of the {replicas} replicas", size)
    stream = InputStream(train, global_batch_size=size, seed=settings.seed)
    return stream, InputStream(test, global_batch_size=EVALUATION_BATCH_SIZE, seed=settings.seed)


def _compiled_model(
    manifest: Mapping,
    settings: TrainSettings,
    placement: Placement,
    precision: str,
    jit_compile: bool,
    steps_per_epoch: int,
) -> keras.Model:
    keras.utils.clear_session()
    keras.utils.set_random_seed(settings.seed)
    with placement.strategy.scope():
        model = _build(manifest, settings.model, precision)
        model.compile(
            optimizer=RECIPES[settings.recipe](steps_per_epoch * settings.epochs),
            loss="sparse_categorical_crossentropy",
            metrics=["accuracy"],
            jit_compile=jit_compile,
            steps_per_execution=min(STEPS_PER_EXECUTION, steps_per_epoch),
        )
    return model


def _build(manifest: Mapping, name: str, precision: str) -> keras.Model:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        return build_model(name, tuple(manifest["feature_spec"]["image"]["shape"]), len(manifest["label_names"]))
    except ValueError as error:
        raise SettingsError(f"[Train] model: {error}. Choose another dataset or model.") from error
    finally:
        keras.config.set_dtype_policy(before)


def _baseline(total_steps: int) -> keras.optimizers.Optimizer:
    """RMSprop at 1e-3, as the tutorials train."""
    return keras.optimizers.RMSprop(1e-3)


def _onecycle(total_steps: int) -> keras.optimizers.Optimizer:
    """Adam; the rate climbs linearly to 5e-3 over the first fifth of all steps and falls linearly to zero."""
    return keras.optimizers.Adam(WarmUpLinearDecay(5e-3, total_steps, warm_up=0.2))


RECIPES: dict[str, Callable[[int], keras.optimizers.Optimizer]] = {"baseline": _baseline, "onecycle": _onecycle}


class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that climbs linearly from zero to its peak and falls linearly back to zero."""

    def __init__(self, peak: float, total_steps: int, *, warm_up: float) -> None:
        """``warm_up`` is the share of ``total_steps`` on the way up, more than 0 and less than 1."""
        self.peak, self.total_steps, self.warm_up = peak, total_steps, warm_up

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        """The learning rate of the ``step``-th update, counted from 0."""
        # The n-th update uses the rate at its end: the first is not wasted on a rate of zero.
        progress = (tf.cast(step, tf.float32) + 1.0) / (self.total_steps + 1.0)
        return self.peak * tf.minimum(progress / self.warm_up, (1.0 - progress) / (1.0 - self.warm_up))

    def get_config(self) -> dict:
        """The constructor's arguments."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warm_up": self.warm_up}


def _run_epochs(
    model: keras.Model,
    stream: InputStream,
    test: InputStream,
    epochs: int,
    folder: Path,
    rows: list[dict[str, float]],
    after_epoch: Callable[[], None],
) -> None:
    """Run the epochs that ``rows`` does not have yet, adding a row for each; write all rows to the run's folder."""
    writers = {
        name: tf.summary.create_file_writer(str(folder / TENSORBOARD_NAME / name)) for name in ("train", "validation")
    }
    for row in rows:
        _write_row(folder, writers, row)
    for epoch in range(len(rows), epochs):
        rows.append(_run_epoch(model, stream, test, epoch))
        after_epoch()
        _write_row(folder, writers, rows[-1])
        _report_progress(rows, epochs)
    for writer in writers.values():
        writer.close()


def _write_row(folder: Path, writers: Mapping[str, tf.summary.SummaryWriter], row: Mapping[str, float]) -> None:
    append_metrics(folder / METRICS_NAME, row)
    _write_summaries(writers, row)


def _run_epoch(model: keras.Model, stream: InputStream, test: InputStream, epoch: int) -> dict[str, float]:
    started = time.perf_counter()
    history = model.fit(stream.training(epoch), initial_epoch=epoch, epochs=epoch + 1, shuffle=False, verbose=0).history
    trained = time.perf_counter()
    validation = model.evaluate(test.evaluation(), verbose=0, return_dict=True)
    train_seconds = trained - started
    return {
        "epoch": epoch + 1,
        "loss": history["loss"][-1],
        "accuracy": history["accuracy"][-1],
        "val_loss": validation["loss"],
        "val_accuracy": validation["accuracy"],
        "train_seconds": round(train_seconds, 4),
        "evaluation_seconds": round(time.perf_counter() - trained, 4),
        "examples_per_second": round(stream.steps_per_epoch * stream.global_batch_size / train_seconds, 1),
        "learning_rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
    }


def _write_summaries(writers: Mapping[str, tf.summary.SummaryWriter], row: Mapping[str, float]) -> None:
    for name, prefix in (("train", ""), ("validation", "val_")):
        with writers[name].as_default(step=row["epoch"]):
            tf.summary.scalar("epoch_loss", row[f"{prefix}loss"])
            tf.summary.scalar("epoch_accuracy", row[f"{prefix}accuracy"])
    with writers["train"].as_default(step=row["epoch"]):
        tf.summary.scalar("epoch_learning_rate", row["learning_rate"])
        tf.summary.scalar("examples_per_second", row["examples_per_second"])


def _report_progress(rows: list[dict[str, float]], epochs: int) -> None:
    row, left = rows[-1], epochs - len(rows)
    # The first epoch compiles: judge what is left by the newest.
    seconds_left = left * (row["train_seconds"] + row["evaluation_seconds"])
    _logger.info(
        "epoch %d/%d: %.1f s, %s images/s, accuracy %.4f, validation accuracy %.4f, %s",
        *(row["epoch"], epochs, row["train_seconds"], f"{row['examples_per_second']:,.0f}"),
        *(row["accuracy"], row["val_accuracy"], f"{seconds_left:.0f} s left" if left else "done"),
    )


def _save(model: keras.Model, manifest: Mapping, settings: TrainSettings, precision: str, folder: Path) -> None:
    save_file(named_weights(model), folder / WEIGHTS_NAME)
    # Saved without its optimizer: the file loads in any Keras without this project's classes, and holds no schedule.
    trained = _build(manifest, settings.model, precision)
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


def _hardware_facts(settings: TrainSettings, placement: Placement, precision: str, jit_compile: bool) -> dict:
    return {
        "requested_device": settings.device,
        "effective_device": placement.effective_device,
        "device_verified": placement.device_verified,
        "device_name": placement.device_name,
        "device_evidence": placement.evidence,
        "num_replicas": placement.num_replicas,
        "requested_precision": settings.precision,
        "precision": precision,
        "requested_jit_compile": settings.jit_compile,
        "jit_compile": jit_compile,
        "hostname": socket.gethostname(),
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
        "val_accuracy": rows[-1]["val_accuracy"],
        "val_loss": rows[-1]["val_loss"],
    }


def _announce(settings: TrainSettings, placement: Placement, precision: str, jit_compile: bool) -> None:
    _logger.info(
        "training %s on %s (requested %s, %s; %s), %d replica(s), %s, XLA %s",
        *(settings.model, placement.effective_device, settings.device),
        "verified" if placement.device_verified else "NOT verified",
        *(placement.device_name, placement.num_replicas, precision, "on" if jit_compile else "off"),
    )
