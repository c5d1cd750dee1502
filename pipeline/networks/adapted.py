"""Adapted: what a network takes from the data before it is trained (… → stream → **training** → …).

Keras's layers of preprocessing have a method ``adapt`` that takes statistics from examples, such as the mean and
variance of a Normalization. A network here is a function, so the function has it: an attribute ``adapt(model, inputs)``
that gives the model's variables their values, whatever layers they are of. One of the user's own may have it too:

    def standardise(model, inputs):
        model.get_layer("normalization").adapt(inputs)

    @adapted_by(standardise)
    def build(input_shape, num_labels): ...

It is called once, with examples of the train split alone: the first in their stored order, which the records' seed has
shuffled. They, and its code, are part of a run's identity as they are, and so is what comes of them.
"""

from collections.abc import Callable

import keras
import numpy as np

#: (model, inputs uint8 (examples, *input_shape)) → None: assigns variables of the model.
Adapt = Callable[[keras.Model, np.ndarray], None]
Build = Callable[[tuple[int, ...], int], keras.Model]

#: How many examples a network is adapted to, at most: of CIFAR-10 five million patches.
ADAPTED_EXAMPLES = 5_000


def adapted_by(adapt: Adapt) -> Callable[[Build], Build]:
    """A decorator for the function that builds a network."""

    def decorate(build: Build) -> Build:
        build.adapt = adapt
        return build

    return decorate


def adapt_of(build: Build) -> Adapt | None:
    """What adapts the network that a function builds; None where it takes nothing from the data."""
    return getattr(build, "adapt", None)
