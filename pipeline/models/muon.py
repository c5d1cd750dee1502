"""Muon optimizer, also for convolution kernels (Jordan et al. 2024).

The update of a matrix is its momentum after a few Newton–Schulz iterations, which bring all singular values near 1. A
convolution kernel counts as a matrix (height · width · inputs, filters). ``keras.optimizers.Muon`` uses AdamW for it.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import keras

from pipeline.models.model import named_layers

# Coefficients of a·x + b·x³ + c·x⁵ on singular values. Five iterations map values above 0.001 to 0.7 … 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_TINY = 1e-7
_ITERATIONS, _MOMENTUM, _SGD_MOMENTUM = 3, 0.6, 0.85


def orthogonal(matrix: keras.KerasTensor, iterations: int) -> keras.KerasTensor:
    """Bring the singular values of a float32 matrix (rows, columns) near 1. The shape stays the same."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    # Transposing a tall matrix makes its square smaller.
    wide = keras.ops.transpose(matrix) if is_tall else matrix
    wide = wide / (keras.ops.norm(wide) + _TINY)
    for _ in range(iterations):
        square = keras.ops.matmul(wide, keras.ops.transpose(wide))
        wide = _A * wide + keras.ops.matmul(_B * square + _C * keras.ops.matmul(square, square), wide)
    return keras.ops.transpose(wide) if is_tall else wide


@keras.saving.register_keras_serializable(package="tensorcraft")
class KernelMuon(keras.optimizers.Optimizer):
    """Muon for variables of two or more dimensions, SGD with Nesterov momentum for all others.

    Before an update, a matrix is scaled to a norm of 1 per column. Only its direction matters if a normalization
    follows. Exclude layers without a normalization, such as the last layer.
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 0.24,
        *,
        sgd_ratio: float = 1.0,
        exclude: Sequence[str] = (),
        rates: Mapping[str, float] = MappingProxyType({}),
        name: str = "kernel_muon",
        **options: object,
    ) -> None:
        """Create the optimizer. ``sgd_ratio`` is SGD's learning rate divided by Muon's.

        SGD also updates variables whose path matches a regular expression of ``exclude``. ``rates`` maps regular
        expressions of paths to factors on the learning rate, not on weight decay. The first match counts.
        """
        super().__init__(learning_rate=learning_rate, name=name, **options)
        self.sgd_ratio, self.exclude, self.rates = sgd_ratio, tuple(exclude), dict(rates)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create a momentum for each variable."""
        if self.built:
            return
        super().build(variables)
        self.momenta = self.add_optimizer_variables(variables, "momentum")
        self.are_matrices = [
            len(variable.shape) > 1 and not any(re.search(pattern, variable.path) for pattern in self.exclude)
            for variable in variables
        ]
        self.factors = [
            next((factor for pattern, factor in self.rates.items() if re.search(pattern, variable.path)), 1.0)
            for variable in variables
        ]

    def exclude_from_muon(self, variables: Sequence[keras.Variable]) -> None:
        """Let SGD update these variables too. Call this before the optimizer is built."""
        self.exclude += tuple(f"^{re.escape(variable.path)}$" for variable in variables)

    def update_step(self, gradient: keras.KerasTensor, variable: keras.Variable, learning_rate: object) -> None:
        """Update one variable."""
        # The backend's variable has no path, so its index identifies it.
        index = self._get_variable_index(variable)
        rate = keras.ops.cast(learning_rate * self.factors[index], variable.dtype)
        gradient = keras.ops.cast(gradient, variable.dtype)
        is_matrix = self.are_matrices[index]
        share = _MOMENTUM if is_matrix else _SGD_MOMENTUM
        momentum = self.momenta[index] * share + gradient
        self.assign(self.momenta[index], momentum)
        ahead = gradient + momentum * share
        if not is_matrix:
            self.assign_sub(variable, rate * self.sgd_ratio * ahead)
            return
        columns = variable.shape[-1]
        update = orthogonal(keras.ops.reshape(ahead, (-1, columns)), _ITERATIONS)
        scale = columns**0.5 / (keras.ops.norm(keras.ops.reshape(variable, (-1,))) + _TINY)
        self.assign(variable, variable * scale - rate * keras.ops.reshape(update, variable.shape))

    def get_config(self) -> dict:
        """Arguments of the constructor."""
        return super().get_config() | {"sgd_ratio": self.sgd_ratio, "exclude": self.exclude, "rates": self.rates}


def last_matrices(model: keras.Model) -> list[keras.Variable]:
    """Matrices of the last layer with a matrix, also inside a nested model."""
    layers = [layer for _, layer in named_layers(model)]
    matrices = ([weight for weight in layer.weights if len(weight.shape) > 1] for layer in reversed(layers))
    return next(filter(None, matrices), [])
