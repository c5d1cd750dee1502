"""Networks by the name the settings call them (… → stream → training → …)."""

from collections.abc import Callable, Mapping

import keras

from pipeline.errors import SettingsError
from pipeline.networks.baseline_cnn import baseline_cnn
from pipeline.networks.small_convnet import small_convnet

# What three poolings leave a pixel of; below it no network here has anything to look at.
MIN_IMAGE_SIDE = 8

_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}


NETWORKS: dict[str, Callable[[tuple[int, int, int], int], keras.Model]] = {
    "baseline_cnn": baseline_cnn,
    "small_convnet": small_convnet,
}


def build_network(manifest: Mapping, name: str, precision: str) -> keras.Model:
    """``build_model`` for the images and labels of the records.

    Args:
        manifest: that of the records.
        name: as in the settings.
        precision: "float32", or "bfloat16" for what is computed; variables are float32 in either.

    Raises:
        SettingsError: the network does not take such images.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(_POLICIES[precision])
    try:
        return build_model(name, tuple(manifest["image"]["shape"]), len(manifest["label_names"]))
    except ValueError as error:
        raise SettingsError(f"[Train] model: {error}. Choose another dataset or model.") from error
    finally:
        keras.config.set_dtype_policy(before)


def build_model(name: str, image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """A new network: uint8 images (batch, height, width, channels) → float32 probabilities (batch, num_labels).

    Raises:
        ValueError: the images are smaller than the networks are made for.
    """
    if min(image_shape[:2]) < MIN_IMAGE_SIDE:
        raise ValueError(f"{name}: expected images of at least {MIN_IMAGE_SIDE} pixels a side, got {image_shape}")
    return NETWORKS[name](image_shape, num_labels)
