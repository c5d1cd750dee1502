"""Trains a network without dropout on so many logical CPU devices.

Usage: python train_replicas.py RECORDS FOLDER REPLICAS RECIPE ... Dropout would differ: each replica draws its own.
"""

import sys
from pathlib import Path

import keras

from pipeline.settings.training import MODELS, TrainSettings
from pipeline.training.launch import TrainRequest
from pipeline.training.train import train


def without_dropout(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(image_shape, dtype="uint8"),
            layers.Rescaling(1 / 64, offset=-2),
            # What is computed by cpu_kernels.py: the gradients of a convolution and a pooling, GELU.
            layers.Conv2D(8, 3, padding="same"),
            layers.MaxPooling2D(2),
            layers.Activation("gelu"),
            layers.MaxPooling2D(4),
            layers.Flatten(),
            layers.Dense(num_labels, activation="softmax"),
        ]
    )


if __name__ == "__main__":
    records, top, replicas, *training_recipes = sys.argv[1:]
    MODELS.builtin["baseline_cnn"] = f"{__name__}:without_dropout"
    settings = {"device": "cpu", "precision": "float32", "epochs": 1, "global_batch_size": 64}
    for training_recipe in training_recipes:
        folder = Path(top) / training_recipe
        folder.mkdir(parents=True)
        request = TrainRequest(
            records=Path(records),
            settings=TrainSettings(**settings, replicas=int(replicas), training_recipe=training_recipe),
            requested_dataset="cifar10",
            fingerprint="f" * 64,
            checkpoints=folder / "checkpoints",
        )
        train(request, folder)
