"""Loop: the epochs of a run (training's aid).

``fit`` is called once an epoch, each time with that epoch's own finite stream: training and evaluation are timed apart
without guessing from callbacks, the last steps of an epoch are never run twice however many steps one execution takes,
and what an epoch sees depends on (seed, epoch) alone.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import keras

from pipeline import progress
from pipeline.errors import IncompleteTrainingError
from pipeline.stream import InputStream
from pipeline.training.breakdown import Clock
from pipeline.training.selection import best_epoch, has_lost_patience

#: Metrics of one epoch.
Row = dict[str, float]

_logger = logging.getLogger(__name__)


def run_epochs(
    model: keras.Model,
    stream: InputStream,
    evaluated: Mapping[str, InputStream],
    rows: list[Row],
    epochs: int,
    clock: Clock,
    after_epoch: Callable[[Row], None],
    patience: int = 0,
    evaluating: Callable[[], AbstractContextManager] = contextlib.nullcontext,
) -> dict[str, Any]:
    """Run the epochs that ``rows`` does not have yet, adding a row for each.

    Args:
        model: compiled.
        stream: what it is trained on.
        evaluated: prefix of the figures → what they are of.
        rows: the epochs that were run before.
        epochs: how many there are to be.
        clock: told of the part of the stage that each second belongs to.
        after_epoch: called with each new row, when it is among ``rows``.
        patience: how many epochs that are no better than one before end the training; 0: none do.
        evaluating: the context that the model is evaluated in.

    Raises:
        IncompleteTrainingError: the optimizer did not make an update for each step.

    Returns:
        The predictions that the figures of the last epoch are made of, by prefix; what is to be known of the trained
        network beyond them need not evaluate it again. Empty where no epoch was left to run, or training ended before.
    """
    predictions: dict[str, Any] = {}
    problem = stream.split.problem
    for epoch in range(len(rows), epochs):
        if has_lost_patience(rows, patience, problem.chosen_by):
            _logger.info(
                "training ends after epoch %d/%d: no better one on validation since %d",
                len(rows),
                epochs,
                best_epoch(rows, problem.chosen_by),
            )
            break
        clock.enter("training")
        row = _train(model, stream, epoch, epochs)
        _check_updates(model, (epoch + 1) * stream.steps_per_epoch)
        clock.enter("evaluation")
        started = time.perf_counter()
        with evaluating():
            if epoch + 1 == epochs:
                predictions = {prefix: problem.predict(model, held_out) for prefix, held_out in evaluated.items()}
                figures = {prefix: problem.figures(model, found) for prefix, found in predictions.items()}
            else:
                figures = {prefix: problem.quick_figures(model, held_out) for prefix, held_out in evaluated.items()}
        row |= {f"{prefix}_{name}": value for prefix, found in figures.items() for name, value in found.items()}
        row["evaluation_seconds"] = round(time.perf_counter() - started, 4)
        rows.append(row)
        clock.enter("checkpoint")
        after_epoch(row)
        _report(row, epochs, problem.units.rate)
    return predictions


def _train(model: keras.Model, stream: InputStream, epoch: int, epochs: int) -> Row:
    started = time.perf_counter()
    how = {"initial_epoch": epoch, "epochs": epoch + 1, "shuffle": False, "verbose": 0}
    how["callbacks"] = [_Progress(epoch, epochs, stream)]
    history = model.fit(stream.training(epoch), **how).history
    seconds = time.perf_counter() - started
    return {
        "epoch": epoch + 1,
        "loss": history["loss"][-1],
        "accuracy": history["accuracy"][-1],
        "train_seconds": round(seconds, 4),
        "examples_per_second": round(stream.predictions_per_epoch / seconds, 1),
        "learning_rate": float(keras.ops.convert_to_numpy(model.optimizer.learning_rate)),
    }


def _check_updates(model: keras.Model, expected: int) -> None:
    """The record counts steps by the data: read back how many the optimizer made of them."""
    optimizer = model.optimizer
    # It leaves out the updates whose gradients are not finite.
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return
    expected //= optimizer.gradient_accumulation_steps or 1
    updates = int(keras.ops.convert_to_numpy(optimizer.iterations))
    if updates != expected:
        raise IncompleteTrainingError(
            f"expected {expected:,} updates of the weights so far, the optimizer counts {updates:,}. The run is not "
            "published. Look for what ends an epoch early: KERAS_MAX_STEPS_PER_EPOCH, or code of your own."
        )


class _Progress(keras.callbacks.Callback):
    """Tells of what was predicted in training, of all epochs', after each execution of several steps."""

    def __init__(self, epoch: int, epochs: int, stream: InputStream) -> None:
        super().__init__()
        self._what, self._unit = f"epoch {epoch + 1}/{epochs}", stream.split.problem.units.many
        of_an_epoch = stream.predictions_per_epoch
        self._of_a_step = of_an_epoch // stream.steps_per_epoch
        self._before, self._total = epoch * of_an_epoch, epochs * of_an_epoch

    def on_train_batch_end(self, batch: int, logs: Mapping | None = None) -> None:
        progress.tell(self._what, self._before + (batch + 1) * self._of_a_step, self._total, unit=self._unit)


def _report(row: Row, epochs: int, rate: str) -> None:
    left = epochs - row["epoch"]
    # The first epoch compiles: judge what is left by the newest.
    seconds_left = left * (row["train_seconds"] + row["evaluation_seconds"])
    _logger.info(
        "epoch %d/%d: %.1f s, %s %s, loss %.4f, test loss %.4f, accuracy %.4f, test accuracy %.4f, %s",
        *(row["epoch"], epochs, row["train_seconds"], f"{row['examples_per_second']:,.0f}", rate),
        *(row["loss"], row["val_loss"], row["accuracy"], row["val_accuracy"]),
        f"{seconds_left:.0f} s left" if left else "the last epoch",
    )
