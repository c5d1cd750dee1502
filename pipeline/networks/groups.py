"""Groups: learning rates of their own for some of a network's variables (the recipes' aid).

An optimizer of Keras has one learning rate for all variables, and hands it to ``update_step`` with each. There it is
multiplied: any optimizer's updates are in proportion to it.
"""

import re
from collections.abc import Mapping, Sequence

import keras


def at_rates(optimizer: keras.optimizers.Optimizer, rates: Mapping[str, float]) -> keras.optimizers.Optimizer:
    """The optimizer, with the learning rate of some variables multiplied; a decay of weights stays at its own rate.

    Args:
        optimizer: not built yet. It remains of its class, and what is saved of it knows nothing of this.
        rates: regular expression → factor. It is searched for in the path of a variable, as in layer/kernel; the first
            that is found counts, and where none is the factor is 1.
    """
    build, update_step, factors = optimizer.build, optimizer.update_step, []

    def build_in_groups(variables: Sequence[keras.Variable]) -> None:
        factors[:] = [_factor(variable.path, rates) for variable in variables]
        build(variables)

    def update_in_groups(
        gradient: keras.KerasTensor, variable: keras.Variable, learning_rate: keras.KerasTensor
    ) -> None:
        # By its place, as Keras's documentation of own optimizers does: the backend's variable has no path.
        update_step(gradient, variable, learning_rate * factors[optimizer._get_variable_index(variable)])

    optimizer.build, optimizer.update_step = build_in_groups, update_in_groups
    return optimizer


def _factor(path: str, rates: Mapping[str, float]) -> float:
    return next((factor for pattern, factor in rates.items() if re.search(pattern, path)), 1.0)
