"""The training loop: epochs, checkpoints, early stopping and selection of an epoch on the validation split.

Each epoch calls ``fit`` once with a finite stream. Training and evaluation are therefore timed separately, no step
runs twice, and an epoch depends only on the seed and its number. A resumed run therefore ends with the weights of an
uninterrupted run, bit for bit on the same CPU. Checkpoints of other hardware or of another computation are ignored.
Another host with the same hardware adds a segment to the run.
"""

import json
import logging
import math
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import load_file, save

from pipeline import progress
from pipeline.artifacts.manifest import check_contents, read_manifest, write_manifest
from pipeline.artifacts.publish import discard, publishing, require_space, used_bytes
from pipeline.errors import DamagedArtifactError, IncompleteTrainingError
from pipeline.hardware.receipt import confirm
from pipeline.models.model import assign
from pipeline.runs.metrics import METRICS_NAME, Rows, append_metrics
from pipeline.settings.training import HEAD, HEAD_THEN_FULL
from pipeline.training.fine_tuning import fit_head, head_model
from pipeline.training.results import Summaries
from pipeline.training.setup import History, TrainingSetup

# Files of a checkpoint.
_STATE_NAME, _HISTORY_NAME, _BEST_NAME = "state.safetensors", "history.json", "best.safetensors"

# Least time of the steps that an estimate is based on, and least durations of a training and an epoch to report.
_ESTIMATE_SECONDS, _LONG_SECONDS, _LONG_EPOCH_SECONDS = 3.0, 20.0, 60.0

_logger = logging.getLogger(__name__)


class _Estimate:
    """Logs once how long the training takes. The first call starts the clock, so a compilation does not count."""

    def __init__(self, epochs: int, steps_per_epoch: int) -> None:
        self.epochs, self.steps_per_epoch = epochs, steps_per_epoch
        self.started, self.is_done = None, False

    def __call__(self, step: int) -> None:
        """Take the number of finished steps of all epochs."""
        first_step, started = self.started = self.started or (step, time.perf_counter())
        seconds = time.perf_counter() - started
        if self.is_done or seconds < _ESTIMATE_SECONDS:
            return
        self.is_done = True
        per_step = seconds / (step - first_step)
        left, epoch = per_step * (self.epochs * self.steps_per_epoch - step), per_step * self.steps_per_epoch
        if left >= _LONG_SECONDS:
            _logger.info("Training takes about %s more.", progress.duration(left))
        if epoch >= _LONG_EPOCH_SECONDS:
            _logger.info(
                "An epoch takes about %s. Lower [Train] epochs, select a smaller [Train] model or, for a pretrained "
                "model, set [Train] fine_tune = head.",
                progress.duration(epoch),
            )


def restore(setup: TrainingSetup) -> None:
    """Load the newest checkpoint into the model, and the history of the run into the setup."""
    request, group, checkpoints = setup.request, setup.group, setup.request.checkpoints
    # Process 0 writes the checkpoints, and its host may differ from this one.
    used = group.from_chief(setup.used())
    with setup.placement.scope():
        history = restore_checkpoint(checkpoints, setup.model, fingerprint=request.fingerprint, used=used)
    group.check_equal("checkpoint", f"epoch {len(history.rows)}")
    setup.history = history
    setup.clock.spent.update(history.seconds)
    if group.is_chief:
        model_bytes, optimizer_bytes = (
            sum(4 * math.prod(variable.shape) for variable in owner.variables)
            for owner in (setup.model, setup.model.optimizer)
        )
        checkpoint_bytes = optimizer_bytes + model_bytes * (2 if setup.settings.keep == "best" else 1)
        # At the peak, there are two checkpoints, or a checkpoint and two models.
        needed = checkpoint_bytes + max(checkpoint_bytes, 2 * model_bytes) - used_bytes(checkpoints)
        require_space(setup.folder.parent, max(0, needed))


def train_epochs(setup: TrainingSetup, summaries: Summaries) -> dict[str, Any]:
    """Train the remaining epochs and save a checkpoint after each. Return the final epoch's predictions by split.

    The result is empty if no epoch remains or if training stops early. IncompleteTrainingError: the optimizer made
    fewer or more updates than there were steps.
    """
    settings, model, metric, fields = setup.settings, setup.model, setup.problem.chosen_by, setup.request_fields
    history, receipt = setup.history, setup.receipt
    earlier = tuple(history.segments)
    if earlier:
        finished, host = len(history.rows), earlier[-1]["hostname"]
        _logger.info("Resuming after epoch %d/%d, which was trained on host %s.", finished, settings.epochs, host)
    train_devices = setup.placement.runtime.observe_training(model)
    belongs_to = {name: fields.get(name) for name in ("experiment", "records_fingerprint", "initial_run")}
    identity = {"fingerprint": setup.request.fingerprint, "used": setup.used(), "belongs_to": belongs_to}

    def write_row(row: Mapping[str, float]) -> None:
        append_metrics(setup.folder / METRICS_NAME, row)
        summaries.write_epoch(row)

    for row in history.rows:
        write_row(row)
    predictions: dict[str, Any] = {}
    estimate = _Estimate(settings.epochs, setup.stream.steps_per_epoch)
    while len(history.rows) < settings.epochs:
        if has_lost_patience(history.rows, settings.patience, metric):
            _logger.info(
                "Stopping early after epoch %d/%d. The best epoch on the validation split is epoch %d.",
                *(len(history.rows), settings.epochs, best_epoch(history.rows, metric)),
            )
            break
        epoch = len(history.rows) + 1
        row, predictions = _run_epoch(setup, epoch, estimate)
        setup.clock.enter("checkpoint")
        # Patience depends on the metrics, so all processes use those of process 0.
        row |= setup.group.from_chief(row)
        history.rows.append(row)
        receipt = confirm(receipt, train_devices())
        segment = {"first_epoch": history.restored + 1, "last_epoch": epoch, "hostname": socket.gethostname()}
        segment |= {"device_verified": receipt["device_verified"], "receipt": receipt}
        history.segments = [*earlier, segment]
        history.seconds = setup.clock.seconds()
        if settings.keep == "best" and best_epoch(history.rows, metric) == epoch:
            history.best = copied_values(variables_of(model))
        if setup.group.is_chief:
            save_checkpoint(setup.request.checkpoints, model, history, **identity)
        write_row(row)
        _log_epoch(row, settings.epochs)
    return predictions


def select_epoch(setup: TrainingSetup) -> int:
    """Load the weights of the epoch that [Train] keep selects. Return its number, from 1."""
    epoch, history = len(setup.history.rows), setup.history
    if setup.settings.keep == "best":
        epoch = best_epoch(history.rows, setup.problem.chosen_by)
    if epoch != len(history.rows):
        _logger.info("Keeping the weights of epoch %d, the best on the validation split.", epoch)
        with setup.placement.scope():
            assign(variables_of(setup.model), history.best)
    return epoch


def best_epoch(rows: Rows, metric: str) -> int:
    """First epoch, from 1, with the highest validation "accuracy" or the lowest validation "loss". NaN is worst."""
    sign = 1 if metric == "accuracy" else -1
    values = [row[f"validation_{metric}"] for row in rows]
    merits = [-math.inf if math.isnan(value) else sign * value for value in values]
    return merits.index(max(merits)) + 1


def has_lost_patience(rows: Rows, patience: int, metric: str) -> bool:
    """Whether the last ``patience`` epochs brought no improvement. A patience of 0 never ends."""
    return bool(patience and rows) and len(rows) - best_epoch(rows, metric) >= patience


def _run_epoch(setup: TrainingSetup, epoch: int, estimate: _Estimate) -> tuple[dict[str, float], dict[str, Any]]:
    """Train and evaluate an epoch, numbered from 1. Return predictions for the final epoch only."""
    model, evaluation, clock, streams = setup.model, setup.problem.evaluation, setup.clock, setup.evaluated
    clock.enter("training")
    head, features = fit_head(setup) if epoch == 1 and setup.fine_tune in (HEAD, HEAD_THEN_FULL) else ({}, {})
    row = {"epoch": epoch, **(head if setup.fine_tune == HEAD else _train(setup, epoch, estimate, head))}
    clock.enter("evaluation")
    started, predictions = time.perf_counter(), {}
    with setup.evaluating():
        if setup.fine_tune == HEAD:
            model, streams = head_model(model), {split: features[split] for split in streams}
        for split, stream in streams.items():
            if epoch == setup.settings.epochs:
                predictions[split] = evaluation.predict(model, stream)
                metrics = evaluation.metrics(model, predictions[split])
            else:
                metrics = evaluation.quick_metrics(model, stream)
            row |= {f"{split}_{name}": value for name, value in metrics.items()}
    row["evaluation_seconds"] = round(time.perf_counter() - started, 4)
    return row, predictions


def _train(setup: TrainingSetup, epoch: int, estimate: _Estimate, head: Mapping[str, float]) -> dict[str, float]:
    model, stream, epochs = setup.model, setup.stream, setup.settings.epochs
    per_epoch, unit = stream.predictions_per_epoch, setup.problem.units.plural

    def report_progress(batch: int, logs: object) -> None:
        finished = (epoch - 1 + (batch + 1) / stream.steps_per_epoch) * per_epoch
        progress.report(f"Epoch {epoch}/{epochs}", round(finished), epochs * per_epoch, unit=unit)
        estimate((epoch - 1) * stream.steps_per_epoch + batch + 1)

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=report_progress)]
    options = {"initial_epoch": epoch - 1, "epochs": epoch, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    # The loss of mixed labels has the weights, because an example has two of them.
    if setup.label_weights and not setup.labels_mixed:
        options["class_weight"] = setup.label_weights
    started = time.perf_counter()
    fitted = model.fit(stream.training(epoch - 1), **options)
    seconds, head_seconds = time.perf_counter() - started, head.get("train_seconds", 0)
    updates = int(keras.ops.convert_to_numpy(model.optimizer.iterations))
    expected = epoch * stream.steps_per_epoch // (model.optimizer.gradient_accumulation_steps or 1)
    # This optimizer skips updates if a gradient is not finite.
    if updates != expected and not isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise IncompleteTrainingError(
            f"Expected {expected:,} updates of the weights, got {updates:,}. The run is not published. Check whether "
            "user code ends an epoch early."
        )
    return {
        "loss": fitted.history["loss"][-1],
        "accuracy": fitted.history.get("accuracy", [None])[-1],
        "train_seconds": round(seconds + head_seconds, 4),
        **({"head_seconds": head_seconds, "features_seconds": head["features_seconds"]} if head else {}),
        "examples_per_second": round(per_epoch / seconds, 1),
        "learning_rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
    }


def _log_epoch(row: Mapping[str, float], epochs: int) -> None:
    accuracy = row["test_accuracy"]
    # With the time of day, the line fits 79 columns.
    _logger.info(
        "Epoch %d/%d: loss %.3f, test %s, %.1f s, %s/s",
        *(row["epoch"], epochs, row["loss"]),
        f"loss {row['test_loss']:.3f}" if accuracy is None else f"accuracy {accuracy:.2%}",
        *(row["train_seconds"], f"{row['examples_per_second']:,.0f}"),
    )


def save_checkpoint(
    folder: Path, model: keras.Model, history: History, *, fingerprint: str, used: Mapping, belongs_to: Mapping
) -> None:
    """Publish a checkpoint of the last epoch in ``folder`` and remove earlier checkpoints.

    ``used`` is JSON data, the hardware and computation that must be equal to resume. ``belongs_to`` has the experiment
    and the artifacts that retention keeps for this checkpoint.
    """
    epoch = len(history.rows)
    final = folder / f"epoch-{epoch:06d}"
    content = {"rows": history.rows, "segments": history.segments, "seconds": history.seconds}
    with publishing(final) as temporary:
        (temporary / _STATE_NAME).write_bytes(save(copied_values(variables_of(model, optimizer=True))))
        if history.best:
            (temporary / _BEST_NAME).write_bytes(save(history.best))
        (temporary / _HISTORY_NAME).write_text(json.dumps(content), encoding="utf-8")
        identity = {"run": fingerprint, "epoch": epoch, "used": dict(used)}
        write_manifest(temporary, stage="checkpoint", identity=identity, details={"belongs_to": dict(belongs_to)})
    for checkpoint in folder.glob("epoch-*"):
        if checkpoint != final:
            discard(checkpoint)


def restore_checkpoint(folder: Path, model: keras.Model, *, fingerprint: str, used: Mapping[str, Any]) -> History:
    """Load the newest valid checkpoint of this run into ``model``. Checkpoints with another ``used`` are ignored.

    Return the history of the run, which is empty if no checkpoint is valid.
    """
    for candidate in sorted(folder.glob("epoch-*"), reverse=True):
        try:
            manifest = read_manifest(candidate)
            check_contents(candidate, manifest)
        except DamagedArtifactError as error:
            _logger.warning("Ignoring a damaged checkpoint. %s", error)
            continue
        identity = manifest["identity"]
        if identity.get("run") != fingerprint:
            continue
        saved = identity.get("used") or {}
        differing = {name: saved.get(name) for name, value in used.items() if saved.get(name) != value}
        if differing:
            expected = {name: used[name] for name in differing}
            _logger.warning("Ignoring checkpoint %s, because it used %s, not %s.", candidate.name, differing, expected)
            continue
        state, variables = load_file(candidate / _STATE_NAME), variables_of(model, optimizer=True)
        if state.keys() == variables.keys():
            assign(variables, state)
            history = History(**json.loads((candidate / _HISTORY_NAME).read_text(encoding="utf-8")))
            history.restored = len(history.rows)
            if (candidate / _BEST_NAME).exists():
                history.best = load_file(candidate / _BEST_NAME)
            return history
    return History()


def variables_of(model: keras.Model, *, optimizer: bool = False) -> dict[str, keras.Variable]:
    """Index and path → variable of the model and, on request, of its optimizer."""
    variables = [*model.variables, *(model.optimizer.variables if optimizer else ())]
    # Variables may share a path, for example the seed states of two dropout layers.
    return {f"{index:04d} {variable.path}": variable for index, variable in enumerate(variables)}


def copied_values(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    """Copies of the values. On a CPU, a converted variable may share memory with the next step."""
    return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
