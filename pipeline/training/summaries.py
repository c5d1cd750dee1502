"""Summaries: what TensorBoard shows of a run (… → training → summaries).

Scalars by epoch under ``train`` and ``test``; hyper-parameters, the most confident mistakes and the profiler's
trace, which belong to the run as a whole, beside them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from pipeline.runs.record import names
from pipeline.stream import InputStream
from pipeline.training import words

TENSORBOARD_NAME = "tensorboard"


class Summaries:
    """Writes TensorBoard's files into a run's folder; used as a context manager, which closes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / TENSORBOARD_NAME
        self._writers = {name: tf.summary.create_file_writer(str(self._folder / name)) for name in ("train", "test")}

    def __enter__(self) -> "Summaries":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def write_epoch(self, row: Mapping[str, float]) -> None:
        """The scalars of one epoch's row of metrics."""
        for name, prefix in (("train", ""), ("test", "val_")):
            with self._writers[name].as_default(step=row["epoch"]):
                tf.summary.scalar("epoch_loss", row[f"{prefix}loss"])
                tf.summary.scalar("epoch_accuracy", row[f"{prefix}accuracy"])
        with self._writers["train"].as_default(step=row["epoch"]):
            tf.summary.scalar("epoch_learning_rate", row["learning_rate"])
            tf.summary.scalar("examples_per_second", row["examples_per_second"])

    def write_run(self, record: Mapping[str, object], mistakes: Sequence[Mapping], tiles: np.ndarray) -> None:
        """The run's hyper-parameters, and the images of its most confident mistakes with what they were taken for.

        Args:
            record: the settings of the run, its precision and ``fingerprint``.
            mistakes: each with the names ``label`` and ``predicted`` and the ``confidence``.
            tiles: their images, uint8 (mistakes, height, width, channels).
        """
        tuned = {name: record[name] for name in ("experiment", *names("setting"), "precision")}
        with tf.summary.create_file_writer(str(self._folder)).as_default(step=record["epochs"]) as writer:
            hparams.hparams_config(
                hparams=[hparams.HParam(name) for name in tuned],
                metrics=[
                    hparams.Metric("epoch_accuracy", group="test", display_name="test accuracy"),
                    hparams.Metric("examples_per_second", group="train", display_name="images/s"),
                ],
            )
            hparams.hparams(tuned, trial_id=record["fingerprint"][:12])
            if len(mistakes):
                tf.summary.image("mistakes", tiles, max_outputs=len(tiles))
                lines = [words.mistake(one["label"], one["predicted"], one["confidence"]) for one in mistakes]
                tf.summary.text("mistakes_in_words", "\n".join(f"1. {line}" for line in lines))
            writer.close()


def profile(model: keras.Model, stream: InputStream, folder: Path, *, steps: int) -> None:
    """Leave the profiler's trace of a few training steps; trains ``model`` on, so nothing may be wanted of it after."""
    batches = stream.training(0).take(min(steps, stream.steps_per_epoch))
    with tf.profiler.experimental.Profile(str(folder / TENSORBOARD_NAME)):
        model.fit(batches, shuffle=False, verbose=0)
