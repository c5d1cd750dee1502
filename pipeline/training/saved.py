"""Saved: a trained network as files of its run (training's aid)."""

from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
from safetensors.numpy import save

from pipeline.config.own_code import is_own
from pipeline.config.training import TrainSettings
from pipeline.networks.build import build_network
from pipeline.networks.model import named_variables
from pipeline.networks.own import untrained_copy
from pipeline.problems.find import problem_of_records
from pipeline.runs.metrics import MODEL_NAME, WEIGHTS_NAME


def save_network(model: keras.Model, manifest: Mapping, settings: TrainSettings, precision: str, folder: Path) -> None:
    """Leave the weights, and the network with them, in a run's folder."""
    # Not by save_file, whose file only its owner may read.
    (folder / WEIGHTS_NAME).write_bytes(save(named_weights(model)))
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
