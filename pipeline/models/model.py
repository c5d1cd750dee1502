"""Layers, outputs, loss, variable names and adaptation of Keras models, and Keras's configuration.

Models take the uint8 images or tokens of the records. They return float32 probabilities or logits in every precision.
With logits, the loss stays exact even if a probability would round to 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

LOGITS, PROBABILITIES = "logits", "probabilities"

#: Function of a model and inputs, uint8 (examples, *input_shape). It assigns variables of the model.
Adapt = Callable[[keras.Model, np.ndarray], None]
Build = Callable[[tuple[int, ...], int], keras.Model]

#: Maximum number of examples for the adaptation of a model.
ADAPTED_EXAMPLES = 5_000
# The default of 0.99 averages more steps than a short training has.
_MOMENTUM = 0.9


def configure_keras() -> None:
    """Set Keras's documented defaults, because no fingerprint covers keras.json and the environment."""
    keras.config.set_floatx("float32")
    keras.config.set_epsilon(1e-7)
    keras.config.set_image_data_format("channels_last")
    keras.config.set_max_epochs(None)
    keras.config.set_max_steps_per_epoch(None)


def stacked(
    name: str,
    input_shape: tuple[int, ...],
    layers: Sequence[keras.Layer],
    num_labels: int,
    *,
    activation: str | None = "softmax",
    batch_size: int | None = None,
) -> keras.Model:
    """Stack layers from uint8 inputs to float32 (…, num_labels), probabilities or, without activation, logits."""
    # The three digits of bfloat16 are too few for the loss.
    output_name = "probabilities" if activation else "logits"
    outputs = keras.layers.Dense(num_labels, activation=activation, dtype="float32", name=output_name)
    inputs = keras.Input(input_shape, batch_size=batch_size, dtype="uint8")
    return keras.Sequential([inputs, *layers, outputs], name=name)


def rescaled() -> keras.layers.Layer:
    """Rescale pixels to -2 … 2, about zero mean and unit variance (CIFAR-10 has mean 121 and deviation 63)."""
    # With pixels from 0 to 1, the accuracy of the baseline CNN after five epochs is 1.8 points lower.
    return keras.layers.Rescaling(1 / 64, offset=-2, name="rescale")


def convolution(filters: int, name: str, kernel: int = 3, strides: int = 1, **options: Any) -> keras.layers.Layer:
    """Convolution without bias, because the normalization has one. Keras's layer also gets the ``options``."""
    return keras.layers.Conv2D(filters, kernel, strides, padding="same", use_bias=False, name=name, **options)


def normalized(name: str) -> list[keras.layers.Layer]:
    """Batch normalization and ReLU."""
    normalization = keras.layers.BatchNormalization(momentum=_MOMENTUM, name=f"norm_{name}")
    return [normalization, keras.layers.Activation("relu", name=f"relu_{name}")]


def adapted_by(adapt: Adapt) -> Callable[[Build], Build]:
    """Decorate a model builder with a function that sets variables from the data before training.

    The Train stage calls it once with the first ``ADAPTED_EXAMPLES`` examples of the train split, in stored order.
    """

    def decorate(build: Build) -> Build:
        build.adapt = adapt
        return build

    return decorate


def gives_logits(build: Build) -> Build:
    """Decorate a model builder of the pipeline whose models return logits instead of probabilities."""
    build.outputs = LOGITS
    return build


@dataclass(frozen=True)
class Crossentropy:
    """Crossentropy of int labels (batch, …) and outputs of a ``kind`` (batch, …, num_labels), float32 (batch, …)."""

    kind: str = PROBABILITIES
    label_smoothing: float = 0.0

    def __call__(self, labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        """Compute the loss of each prediction."""
        by_logits, smoothing = self.kind == LOGITS, self.label_smoothing
        if not smoothing:
            return keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=by_logits)
        # Keras may have added a last dimension of 1 to the labels.
        labels = keras.ops.reshape(labels, keras.ops.shape(outputs)[:-1])
        one_hot = keras.ops.one_hot(labels, outputs.shape[-1])
        return keras.losses.categorical_crossentropy(one_hot, outputs, from_logits=by_logits, label_smoothing=smoothing)


def kind_trained_on(model: keras.Model) -> str:
    """Whether the outputs of a compiled model are "logits" or "probabilities"."""
    # The loss of mixed labels has the loss of plain labels in ``of_plain``.
    return getattr(getattr(model.loss, "of_plain", model.loss), "kind", PROBABILITIES)


def as_probabilities(outputs: np.ndarray, kind: str) -> np.ndarray:
    """Convert outputs of a model (examples, …, num_labels) to float32 probabilities of the same shape."""
    outputs = outputs.astype(np.float32)
    if kind != LOGITS:
        return outputs
    # With NumPy, the result does not depend on the batch.
    powers = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def last_layer(model: keras.Model) -> keras.Layer:
    """The last layer with weights, which depends on the labels. Only activations and scales follow."""
    return next(layer for layer in reversed(model.layers) if layer.weights)


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Name, such as "dense/kernel" or "backbone/conv_1/kernel" for a nested layer, → variable. Saving keeps names."""
    variables: dict[str, keras.Variable] = {}
    for layer_name, layer in named_layers(model):
        for variable in layer.weights:
            # In a layer with nested layers, names repeat but paths differ.
            suffix = f"/{variable.path}".partition(f"/{layer.name}/")[2] or variable.name
            name, number = f"{layer_name}/{suffix}", 2
            while name in variables:
                name, number = f"{layer_name}/{suffix}_{number}", number + 1
            variables[name] = variable
    # A subclassed model may have variables outside its layers.
    named_ids = {id(variable) for variable in variables.values()}
    return variables | {variable.path: variable for variable in model.weights if id(variable) not in named_ids}


def named_weights(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the values of ``named_variables`` as float32 arrays."""
    return {name: keras.ops.convert_to_numpy(variable) for name, variable in named_variables(model).items()}


def named_layers(model: keras.Model) -> Iterator[tuple[str, keras.Layer]]:
    """Iterate over names and layers. The layers of a nested model have its name as prefix."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from ((f"{layer.name}/{name}", inner) for name, inner in named_layers(layer))
        else:
            yield layer.name, layer


def assign(variables: Mapping[str, keras.Variable], values: Mapping[str, np.ndarray]) -> None:
    """Assign values to variables by name."""
    for name, variable in variables.items():
        variable.assign(values[name])
