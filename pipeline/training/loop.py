"""The epochs of a training, the selection of one of them on the validation split, and the end of training.

``fit`` is called once per epoch with that epoch's finite stream. So training and evaluation are timed apart, no step at
the end of an epoch runs twice, and an epoch depends on (seed, epoch) alone.
"""

import logging
import math
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from pipeline import progress
from pipeline.artifacts.publish import require_space
from pipeline.errors import IncompleteTrainingError
from pipeline.hardware.receipt import confirm
from pipeline.models.model import assign
from pipeline.runs.metrics import METRICS_NAME, append_metrics
from pipeline.settings.training import TrainSettings
from pipeline.training.checkpoint import (
    History,
    bytes_needed,
    copied,
    restore_checkpoint,
    save_checkpoint,
    variables_of,
)
from pipeline.training.setup import TrainingSetup
from pipeline.training.summaries import Summaries

#: Metrics of the epochs.
Rows = Sequence[Mapping[str, float]]

_logger = logging.getLogger(__name__)


def restore(setup: TrainingSetup) -> History:
    """The history of the run, with the newest checkpoint in the model."""
    checkpoints, group = setup.request.checkpoints, setup.group
    # Process 0 writes the checkpoints, and the hosts of several processes may differ.
    used = group.from_chief(setup.used())
    with setup.placement.scope():
        history = restore_checkpoint(checkpoints, setup.model, fingerprint=setup.request.fingerprint, used=used)
    group.check_equal("checkpoint", f"epoch {len(history.rows)}")
    setup.clock.add(history.seconds)
    if group.is_chief:
        needed = bytes_needed(setup.model, checkpoints, keep_best=setup.settings.keep == "best")
        require_space(setup.folder.parent, needed)
    return history


def train_epochs(setup: TrainingSetup, history: History, summaries: Summaries) -> dict[str, Any]:
    """Train the epochs that the history lacks, with a checkpoint after each.

    Returns the predictions of the last epoch by split. Empty if no epoch is left, or if patience ends.
    IncompleteTrainingError: the optimizer did not make an update for each step.
    """
    settings, model, metric, known = setup.settings, setup.model, setup.problem.chosen_by, setup.known
    earlier, receipt = tuple(history.segments), setup.receipt
    if earlier:
        done, host = len(history.rows), earlier[-1]["hostname"]
        _logger.info("Resuming after epoch %d/%d, which was trained on %s.", done, settings.epochs, host)
    train_devices = setup.placement.runtime.observe_training(model)
    about = {
        "fingerprint": setup.request.fingerprint,
        "used": setup.used(),
        "belongs_to": {name: known.get(name) for name in ("experiment", "records_fingerprint", "initial_run")},
    }
    for row in history.rows:
        _write_row(setup, summaries, row)
    predictions: dict[str, Any] = {}
    while not _is_over(history.rows, settings, metric):
        epoch = len(history.rows) + 1
        row, predictions = _run_epoch(setup, epoch)
        setup.clock.enter("checkpoint")
        # All processes follow the figures of one, because patience depends on them.
        row |= setup.group.from_chief(row)
        history.rows.append(row)
        receipt = confirm(receipt, train_devices())
        segment = {
            "first_epoch": history.restored + 1,
            "last_epoch": epoch,
            "hostname": socket.gethostname(),
            "device_verified": receipt["device_verified"],
            "receipt": receipt,
        }
        history.segments = [*earlier, segment]
        history.seconds = setup.clock.seconds()
        if settings.keep == "best" and best_epoch(history.rows, metric) == epoch:
            history.best = copied(variables_of(model))
        if setup.group.is_chief:
            save_checkpoint(setup.request.checkpoints, model, history, **about)
        _write_row(setup, summaries, row)
        _report(row, settings.epochs, setup.problem.units.rate)
    return predictions


def keep_epoch(setup: TrainingSetup, history: History) -> int:
    """Restore the weights of the epoch that the settings select, and return it."""
    kept = last = len(history.rows)
    if setup.settings.keep == "best":
        kept = best_epoch(history.rows, setup.problem.chosen_by)
    if kept != last:
        _logger.info("Keeping the weights of epoch %d, the best on the validation split.", kept)
        with setup.placement.scope():
            assign(variables_of(setup.model), history.best)
    return kept


def best_epoch(rows: Rows, metric: str) -> int:
    """The first epoch, from 1, with the greatest "accuracy", or the least "loss", on validation. NaN is the worst."""
    sign = 1 if metric == "accuracy" else -1
    values = [row[f"validation_{metric}"] for row in rows]
    merits = [-math.inf if math.isnan(value) else sign * value for value in values]
    return merits.index(max(merits)) + 1


def has_lost_patience(rows: Rows, patience: int, metric: str) -> bool:
    """Whether the last ``patience`` epochs were no better than one before. 0: never."""
    return bool(patience and rows) and len(rows) - best_epoch(rows, metric) >= patience


def _is_over(rows: Rows, settings: TrainSettings, metric: str) -> bool:
    if len(rows) >= settings.epochs:
        return True
    if is_over := has_lost_patience(rows, settings.patience, metric):
        _logger.info(
            "Stopping early after epoch %d/%d. The best epoch on the validation split is epoch %d.",
            *(len(rows), settings.epochs, best_epoch(rows, metric)),
        )
    return is_over


def _run_epoch(setup: TrainingSetup, epoch: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Train and evaluate an epoch, numbered from 1. Returns predictions for the last epoch only."""
    model, evaluation, clock = setup.model, setup.problem.evaluation, setup.clock
    clock.enter("training")
    row = {"epoch": epoch, **_train(setup, epoch)}
    _check_updates(model, epoch * setup.stream.steps_per_epoch)
    clock.enter("evaluation")
    started, predictions = time.perf_counter(), {}
    with setup.evaluating():
        for split, stream in setup.evaluated.items():
            if epoch == setup.settings.epochs:
                predictions[split] = evaluation.predict(model, stream)
                metrics = evaluation.figures(model, predictions[split])
            else:
                metrics = evaluation.quick_figures(model, stream)
            row |= {f"{split}_{name}": value for name, value in metrics.items()}
    row["evaluation_seconds"] = round(time.perf_counter() - started, 4)
    return row, predictions


def _train(setup: TrainingSetup, epoch: int) -> dict[str, float]:
    model, stream, epochs = setup.model, setup.stream, setup.settings.epochs
    of_an_epoch, unit = stream.predictions_per_epoch, setup.problem.units.many

    def tell(batch: int, logs: object) -> None:
        done = (epoch - 1 + (batch + 1) / stream.steps_per_epoch) * of_an_epoch
        progress.tell(f"Epoch {epoch}/{epochs}", round(done), epochs * of_an_epoch, unit=unit)

    callbacks = [keras.callbacks.LambdaCallback(on_train_batch_end=tell)]
    how = {"initial_epoch": epoch - 1, "epochs": epoch, "shuffle": False, "verbose": 0, "callbacks": callbacks}
    started = time.perf_counter()
    fitted = model.fit(stream.training(epoch - 1), **how)
    seconds = time.perf_counter() - started
    return {
        "loss": fitted.history["loss"][-1],
        "accuracy": fitted.history["accuracy"][-1],
        "train_seconds": round(seconds, 4),
        "examples_per_second": round(of_an_epoch / seconds, 1),
        "learning_rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
    }


def _check_updates(model: keras.Model, expected: int) -> None:
    """Compare the steps of the record with the updates of the optimizer."""
    optimizer = model.optimizer
    # It skips updates with gradients that are not finite.
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return
    expected //= optimizer.gradient_accumulation_steps or 1
    updates = int(keras.ops.convert_to_numpy(optimizer.iterations))
    if updates != expected:
        raise IncompleteTrainingError(
            f"expected {expected:,} updates of the weights so far, the optimizer counts {updates:,}. The run is not "
            "published. Look for user code that ends an epoch early."
        )


def _report(row: Mapping[str, float], epochs: int, rate: str) -> None:
    left = epochs - row["epoch"]
    # Estimated from the newest epoch, because the first one compiles.
    seconds_left = left * (row["train_seconds"] + row["evaluation_seconds"])
    _logger.info(
        "Epoch %d/%d: loss %.4f, accuracy %.2f%%, test loss %.4f, test accuracy %.2f%%, %.1f s, %s %s%s",
        *(row["epoch"], epochs, row["loss"], 100 * row["accuracy"], row["test_loss"], 100 * row["test_accuracy"]),
        *(row["train_seconds"], f"{row['examples_per_second']:,.0f}", rate),
        f", about {seconds_left:.0f} s left" if left else "",
    )


def _write_row(setup: TrainingSetup, summaries: Summaries, row: Mapping[str, float]) -> None:
    append_metrics(setup.folder / METRICS_NAME, row)
    summaries.write_epoch(row)
