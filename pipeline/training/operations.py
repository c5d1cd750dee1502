"""Operations: how many floating-point operations a step takes (training's aid).

Both backends count the operations of a loop once, however often it runs. What a recurrent layer takes grows by the same
for each token: it is counted for sequences so short that the layers are laid out without a loop, and continued.
"""

from typing import Any

import keras
import numpy as np

from pipeline.hardware.runtime import Runtime
from pipeline.networks.cpu_kernels import as_keras

# Of one token some gradients are left out.
_SHORT, _LONG = 2, 3


def step_flops(runtime: Runtime, model: keras.Model, batch: Any) -> float | None:
    """Operations of a compiled model's step on a batch, (inputs, labels); None where they cannot be counted.

    Those of a recurrent network are without its optimizer's, which are the same however long the sequences are.
    """
    # Or they would be others on another machine.
    with as_keras():
        return _step_flops(runtime, model, batch)


def _step_flops(runtime: Runtime, model: keras.Model, batch: Any) -> float | None:
    if not any(isinstance(layer, keras.layers.RNN) for layer in model.layers):
        return runtime.step_flops(model, batch)
    if not isinstance(model, keras.Sequential):
        return None
    inputs, labels = (np.asarray(part) for part in batch)
    counted = [
        runtime.step_flops(_unrolled(model, inputs[:, :length]), (inputs[:, :length], labels[:, :length]))
        for length in (_SHORT, _LONG)
    ]
    if None in counted:
        return None
    short, long = counted
    return short + (inputs.shape[1] - _SHORT) * (long - short)


def _unrolled(model: keras.Model, inputs: np.ndarray) -> keras.Model:
    """The same layers for sequences of this length, one step after the other instead of in a loop."""

    def copied(layer: keras.Layer) -> keras.Layer:
        config = layer.get_config()
        if isinstance(layer, keras.layers.RNN):
            config |= {"unroll": True}
        return type(layer).from_config(config)

    found = keras.Sequential([keras.Input(inputs.shape[1:], dtype=inputs.dtype.name), *map(copied, model.layers)])
    found.compile(keras.optimizers.SGD(), model.loss, jit_compile=False)
    found.optimizer.build(found.trainable_variables)
    return found
