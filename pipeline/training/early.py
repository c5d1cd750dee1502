"""Early: the first epochs on the middle of each image alone, in fewer operations (training's aid).

Howard 2018 trained first on images made smaller. Cut out instead, what is seen keeps its scale, and no pixel is
computed; shapes are static, those of the early epochs and those of the others.
"""

import keras

from pipeline.config import TrainSettings
from pipeline.errors import SettingsError


def early_network(model: keras.Model, settings: TrainSettings) -> keras.Model | None:
    """The network for early epochs, not compiled, in the scope that it was made in; None where there are none.

    It takes the same images, uint8 (batch, height, width, channels), and gives the same outputs of their middle, by the
    same layers: what it learns the network has learned.

    Raises:
        SettingsError: the network takes no such images.
    """
    if not settings.early_epochs:
        return None
    if not getattr(model, "inputs", None):
        raise _refusal(settings, "is no keras.Sequential, nor a functional keras.Model")
    side, shape = settings.early_side, model.input_shape[1:]
    if side >= min(shape[:2]):
        raise SettingsError(f"[Train] early_side: expected less than the images' {min(shape[:2])} pixels, got {side}")
    inputs = keras.Input(shape, dtype=model.inputs[0].dtype)
    cut = [((length - side) // 2, length - side - (length - side) // 2) for length in shape[:2]]
    middle = keras.layers.Cropping2D(cut, dtype=model.inputs[0].dtype)(inputs)
    try:
        same = keras.models.clone_model(
            # The same again, but not compiled: clone_model would copy loss and optimizer.
            keras.Model(model.inputs[0], model.outputs[0]),
            input_tensors=keras.Input(middle.shape[1:], dtype=middle.dtype),
            clone_function=lambda layer: layer,
        )
        found = keras.Model(inputs, same(middle), name=f"early_{model.name}")
    # As layers refuse shapes other than those they were built for.
    except (ValueError, TypeError) as error:
        raise _refusal(settings, f"does not take them ({str(error).splitlines()[0]})") from error
    if found.output_shape != model.output_shape:
        raise _refusal(settings, f"gives outputs of other shapes for them, {found.output_shape}")
    return found


def _refusal(settings: TrainSettings, why: str) -> SettingsError:
    return SettingsError(
        f"[Train] early_side: expected a network that takes images of {settings.early_side} pixels a side too, and "
        f"{settings.model} {why}. Choose one that ends in a pooling over all places, or early_epochs = 0."
    )
