"""Drawn: the initial weights that a seed stands for, drawn by TensorFlow whatever backend trains (training's aid)."""

from collections.abc import Mapping
from pathlib import Path

import keras
from safetensors.numpy import load_file, save_file

from pipeline.artefacts.manifest import read_manifest
from pipeline.config.training import TrainSettings
from pipeline.networks.build import build_network
from pipeline.networks.model import named_variables


def seeded_network(manifest: Mapping, settings: TrainSettings, precision: str) -> keras.Model:
    """A new network of seeded weights for the records of a manifest, the first of Keras's session.

    Raises:
        SettingsError: the network does not take the records' examples.
    """
    keras.utils.set_random_seed(settings.seed)
    return build_network(manifest, settings.model, precision)


def draw_weights(records_folder: Path, settings: TrainSettings, file: Path) -> None:
    """Write the initial weights of a run, by the names of ``named_variables``; precision changes none."""
    keras.utils.clear_session()
    network = seeded_network(read_manifest(records_folder), settings, "float32")
    weights = {name: keras.ops.convert_to_numpy(variable) for name, variable in named_variables(network).items()}
    save_file(weights, file)


def take_drawn(model: keras.Model, file: Path) -> None:
    """Give a network the weights that were drawn for it."""
    weights = load_file(file)
    for name, variable in named_variables(model).items():
        variable.assign(weights[name])
