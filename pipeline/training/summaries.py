"""TensorBoard logs: scalars per epoch, hyperparameters, images of the problem, and a profile."""

from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from pipeline.hardware.runtime import Runtime
from pipeline.problems.units import Units
from pipeline.runs.metrics import TENSORBOARD_NAME
from pipeline.runs.record import names
from pipeline.streams.tf_data import InputStream


class Summaries:
    """Writer of a run's TensorBoard logs. ``write_run`` closes the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / TENSORBOARD_NAME
        self._writers = {name: tf.summary.create_file_writer(str(self._folder / name)) for name in ("train", "test")}

    def write_epoch(self, row: Mapping[str, float]) -> None:
        """Write the scalars of one epoch."""
        for name, prefix in (("train", ""), ("test", "test_")):
            with self._writers[name].as_default(step=row["epoch"]):
                for metric in ("loss", "accuracy"):
                    if (value := row[f"{prefix}{metric}"]) is not None:
                        tf.summary.scalar(f"epoch_{metric}", value)
        with self._writers["train"].as_default(step=row["epoch"]):
            tf.summary.scalar("epoch_learning_rate", row["learning_rate"])
            tf.summary.scalar("examples_per_second", row["examples_per_second"])

    def write_run(self, record: Mapping[str, object], images: Mapping[str, np.ndarray], units: Units) -> None:
        """Write the hyperparameters and images, then close the files.

        ``record`` has the settings, precision and fingerprint. ``images`` are uint8 (n, height, width, channels).
        """
        # With boto3, this takes a quarter of a second to import, and training can start without it.
        from tensorboard.plugins.hparams import api as hparams

        tuned = {name: record[name] for name in ("experiment", *names("setting"), "precision")}
        self._writers["run"] = writer = tf.summary.create_file_writer(str(self._folder))
        with writer.as_default(step=record["epochs"]):
            hparams.hparams_config(
                hparams=[hparams.HParam(name) for name in tuned],
                metrics=[
                    hparams.Metric("epoch_accuracy", group="test", display_name="test accuracy"),
                    hparams.Metric("epoch_loss", group="test", display_name="test loss"),
                    hparams.Metric("examples_per_second", group="train", display_name=units.rate),
                ],
            )
            hparams.hparams(tuned, trial_id=record["fingerprint"][:12])
            for name, tiles in images.items():
                tf.summary.image(name, tiles, max_outputs=len(tiles))
        for writer in self._writers.values():
            writer.close()


def profile(model: keras.Model, stream: InputStream, folder: Path, *, runtime: Runtime, steps: int) -> None:
    """Write a profile of ``steps`` training steps. The steps change the weights of ``model``."""
    batches = stream.training(0).take(min(steps, stream.steps_per_epoch))
    with runtime.profile(folder / TENSORBOARD_NAME):
        model.fit(batches, shuffle=False, verbose=0)
