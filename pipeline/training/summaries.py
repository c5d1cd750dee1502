"""TensorBoard's files: scalars by epoch, hyperparameters, texts and images of the problem, and a profile."""

from collections.abc import Mapping
from pathlib import Path

import keras
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from pipeline.hardware.runtime import Runtime
from pipeline.problems.problem import EvaluationSummary
from pipeline.problems.units import Units
from pipeline.runs.record import names
from pipeline.streams.tf_data import InputStream

TENSORBOARD_NAME = "tensorboard"


class Summaries:
    """Writes TensorBoard's files into a run's folder, until ``write_run`` closes them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / TENSORBOARD_NAME
        self._writers = {name: tf.summary.create_file_writer(str(self._folder / name)) for name in ("train", "test")}

    def write_epoch(self, row: Mapping[str, float]) -> None:
        """The scalars of one epoch's row of metrics."""
        for name, prefix in (("train", ""), ("test", "test_")):
            with self._writers[name].as_default(step=row["epoch"]):
                tf.summary.scalar("epoch_loss", row[f"{prefix}loss"])
                tf.summary.scalar("epoch_accuracy", row[f"{prefix}accuracy"])
        with self._writers["train"].as_default(step=row["epoch"]):
            tf.summary.scalar("epoch_learning_rate", row["learning_rate"])
            tf.summary.scalar("examples_per_second", row["examples_per_second"])

    def write_run(self, record: Mapping[str, object], shown: EvaluationSummary, units: Units) -> None:
        """Write the hyperparameters, and the texts and images uint8 (n, height, width, channels) of the problem.

        ``record``: the settings of the run, its precision and ``fingerprint``.
        """
        tuned = {name: record[name] for name in ("experiment", *names("setting"), "precision")}
        self._writers["run"] = writer = tf.summary.create_file_writer(str(self._folder))
        with writer.as_default(step=record["epochs"]):
            hparams.hparams_config(
                hparams=[hparams.HParam(name) for name in tuned],
                metrics=[
                    hparams.Metric("epoch_accuracy", group="test", display_name="test accuracy"),
                    hparams.Metric("examples_per_second", group="train", display_name=units.rate),
                ],
            )
            hparams.hparams(tuned, trial_id=record["fingerprint"][:12])
            for name, images in shown.images.items():
                tf.summary.image(name, images, max_outputs=len(images))
            for name, text in shown.text.items():
                tf.summary.text(name, text)
        for writer in self._writers.values():
            writer.close()


def profile(model: keras.Model, stream: InputStream, folder: Path, *, runtime: Runtime, steps: int) -> None:
    """Write a profile of a few training steps. Trains ``model`` on, so call it last."""
    batches = stream.training(0).take(min(steps, stream.steps_per_epoch))
    with runtime.profile(folder / TENSORBOARD_NAME):
        model.fit(batches, shuffle=False, verbose=0)
