"""Outputs, variable names and adaptation of a Keras model, and Keras's own configuration.

Models take the uint8 images or tokens of the records and return float32 probabilities or logits in every precision.
Training on logits is exact where a probability would round to 0.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import keras
import numpy as np

from pipeline.errors import SettingsError

LOGITS, PROBABILITIES = "logits", "probabilities"

#: (model, inputs uint8 (examples, *input_shape)) → None: assigns variables of the model.
Adapt = Callable[[keras.Model, np.ndarray], None]
Build = Callable[[tuple[int, ...], int], keras.Model]

#: Greatest number of examples that a model is adapted to.
ADAPTED_EXAMPLES = 5_000


def configure_keras() -> None:
    """Set Keras's documented defaults, because keras.json and the environment are outside every identity."""
    keras.config.set_floatx("float32")
    keras.config.set_epsilon(1e-7)
    keras.config.set_image_data_format("channels_last")
    limits = {"epochs": keras.config.max_epochs(), "steps_per_epoch": keras.config.max_steps_per_epoch()}
    for name, limit in limits.items():
        if limit is not None:
            raise SettingsError(
                f"keras.config.max_{name}: expected no limit, got {limit}. Remove keras.config.set_max_{name}() from "
                "your code. [Train] epochs sets how long a run trains."
            )


def image_model(
    name: str,
    image_shape: tuple[int, int, int],
    layers: Sequence[keras.Layer],
    num_labels: int,
    *,
    activation: str | None = "softmax",
) -> keras.Model:
    """uint8 images → these layers → probabilities, or logits without an activation: float32 (batch, num_labels)."""
    # float32, because three digits of bfloat16 are too few for the loss.
    last = "probabilities" if activation else "logits"
    outputs = keras.layers.Dense(num_labels, activation=activation, dtype="float32", name=last)
    return keras.Sequential([keras.Input(image_shape, dtype="uint8"), *layers, outputs], name=name)


def adapted_by(adapt: Adapt) -> Callable[[Build], Build]:
    """Decorate a model builder with a function that sets variables from the data before training.

    It is called once, with the first ``ADAPTED_EXAMPLES`` examples of the train split in their stored order.
    """

    def decorate(build: Build) -> Build:
        build.adapt = adapt
        return build

    return decorate


def gives_logits(build: Build) -> Build:
    """Decorate a builder of the pipeline whose models give logits. The others give probabilities."""
    build.outputs = LOGITS
    return build


@dataclass(frozen=True)
class Crossentropy:
    """(int labels (batch, …), outputs of this kind (batch, …, num_labels)) → float32 (batch, …)."""

    kind: str = PROBABILITIES
    label_smoothing: float = 0.0

    def __call__(self, labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        """The loss of each prediction."""
        by_logits, smoothing = self.kind == LOGITS, self.label_smoothing
        if not smoothing:
            return keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=by_logits)
        # Keras may have added a last dimension of 1 to the labels.
        labels = keras.ops.reshape(labels, keras.ops.shape(outputs)[:-1])
        one_hot = keras.ops.one_hot(labels, outputs.shape[-1])
        return keras.losses.categorical_crossentropy(one_hot, outputs, from_logits=by_logits, label_smoothing=smoothing)


def kind_trained_on(model: keras.Model) -> str:
    """Whether the outputs of a compiled model are "logits" or "probabilities"."""
    # A model that learns from mixed labels has its loss for plain labels in ``of_plain``.
    return getattr(getattr(model.loss, "of_plain", model.loss), "kind", PROBABILITIES)


def as_probabilities(outputs: np.ndarray, kind: str) -> np.ndarray:
    """Outputs of a model (examples, …, num_labels), float32 of the same shape: logits as probabilities."""
    outputs = outputs.astype(np.float32)
    if kind != LOGITS:
        return outputs
    # By NumPy, so that the result does not depend on the batch.
    powers = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def named_variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Variables by names that saving keeps: "dense/kernel", or "backbone/conv_1/kernel" for a layer inside a layer."""
    found: dict[str, keras.Variable] = {}
    for layer_name, layer in named_layers(model):
        for variable in layer.weights:
            # In a layer that contains layers, several variables have one name. Their paths differ.
            below = f"/{variable.path}".partition(f"/{layer.name}/")[2] or variable.name
            name, number = f"{layer_name}/{below}", 2
            while name in found:
                name, number = f"{layer_name}/{below}_{number}", number + 1
            found[name] = variable
    # A subclassed model may have variables outside its layers.
    known = {id(variable) for variable in found.values()}
    return found | {variable.path: variable for variable in model.weights if id(variable) not in known}


def named_layers(model: keras.Model) -> Iterator[tuple[str, keras.Layer]]:
    """Names and layers. A model inside the model is replaced by its layers, with its name as their prefix."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from ((f"{layer.name}/{name}", inner) for name, inner in named_layers(layer))
        else:
            yield layer.name, layer


def assign(variables: Mapping[str, keras.Variable], values: Mapping[str, np.ndarray]) -> None:
    """Assign its value to each variable."""
    for name, variable in variables.items():
        variable.assign(values[name])
