"""Training recipes: optimizer, learning rate schedule and label smoothing. Muon is the optimizer of one of them."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import keras

from pipeline.errors import SettingsError
from pipeline.models.model import named_layers
from pipeline.settings.training import OF_THE_RECIPE, TrainSettings

# Coefficients of a·x + b·x³ + c·x⁵ on singular values. Five iterations map values above 0.001 to 0.7 … 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_TINY = 1e-7
_ITERATIONS, _MOMENTUM, _SGD_MOMENTUM = 3, 0.6, 0.85


@dataclass(frozen=True)
class Recipe:
    """Training recipe.

    Attributes:
        optimizer: Function of the number of updates and a factor on the learning rate. It returns an optimizer.
        label_smoothing: Share of each label to spread over all labels (Szegedy et al. 2016).
        learning_rate: Peak rate for a factor of 1. None means the optimizer's constant rate.
        reference_batch_size: Global batch size for which the rates were chosen.
        decays_vectors: Whether weight decay includes biases and the scales of normalization layers.
    """

    optimizer: Callable[[int, float], keras.optimizers.Optimizer]
    label_smoothing: float = 0.0
    learning_rate: float | None = None
    reference_batch_size: int = 128
    decays_vectors: bool = False


def make_optimizer(recipe: Recipe, settings: TrainSettings, *, total_steps: int) -> keras.optimizers.Optimizer:
    """Build the recipe's optimizer for ``total_steps`` updates. Settings override its learning rate and weight decay.

    [Train] scale_learning_rate "linear" multiplies the rate by the ratio of the batch size to the reference (Goyal et
    al. 2017). "sqrt" multiplies it by the root of this ratio (Krizhevsky 2014, for LAMB You et al. 2020).
    SettingsError: the settings override a schedule, and the recipe does not state its peak.
    """
    ratio = settings.global_batch_size / recipe.reference_batch_size
    scale = {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[settings.scale_learning_rate]
    if settings.learning_rate != OF_THE_RECIPE:
        # Scaling keeps the form of the schedule.
        peak = recipe.learning_rate or _constant_rate(recipe.optimizer(total_steps, 1.0))
        scale = scale * settings.learning_rate / peak
    optimizer = recipe.optimizer(total_steps, scale)
    if settings.weight_decay != OF_THE_RECIPE:
        # Every Keras optimizer supports weight decay, decoupled from the gradient (Loshchilov and Hutter 2019).
        optimizer.weight_decay = settings.weight_decay or None
    return optimizer


def _constant_rate(optimizer: keras.optimizers.Optimizer) -> float:
    if isinstance(optimizer.get_config()["learning_rate"], dict):
        raise SettingsError(
            "[Train] learning_rate: cannot override the schedule of this training recipe, because its peak is unknown. "
            "Pass the peak as Recipe(…, learning_rate=…)."
        )
    return float(keras.ops.convert_to_numpy(optimizer.learning_rate))


class WarmUpLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly from zero to its peak and falls linearly to zero."""

    def __init__(self, peak: float, total_steps: int, *, warm_up: float) -> None:
        """Create a schedule. ``warm_up``, between 0 and 1, is the share of ``total_steps`` before the peak."""
        self.peak, self.total_steps, self.warm_up = peak, total_steps, warm_up

    def __call__(self, step: keras.KerasTensor) -> keras.KerasTensor:
        """Learning rate of the update ``step``, from 0."""
        # Each update uses the rate at its end, so the rate of update 0 is above zero.
        progress = (keras.ops.cast(step, "float32") + 1.0) / (self.total_steps + 1.0)
        return self.peak * keras.ops.minimum(progress / self.warm_up, self.falling(progress))

    def falling(self, progress: keras.KerasTensor) -> keras.KerasTensor:
        """Factor on the peak after the warm-up, for a progress from 0 to 1."""
        return (1.0 - progress) / (1.0 - self.warm_up)

    def get_config(self) -> dict:
        """Arguments of the constructor."""
        return {"peak": self.peak, "total_steps": self.total_steps, "warm_up": self.warm_up}


class WarmUpCosineDecay(WarmUpLinearDecay):
    """Learning rate that rises linearly from zero to its peak and falls to zero along a half cosine."""

    def falling(self, progress: keras.KerasTensor) -> keras.KerasTensor:
        """See WarmUpLinearDecay."""
        fallen = keras.ops.clip((progress - self.warm_up) / (1.0 - self.warm_up), 0.0, 1.0)
        return 0.5 + 0.5 * keras.ops.cos(math.pi * fallen)


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
    """Muon (Jordan et al. 2024) for variables of two or more dimensions, SGD with Nesterov momentum for all others.

    The update of a matrix is its momentum after a few Newton–Schulz iterations, which bring all singular values near 1.
    A convolution kernel counts as a matrix (height · width · inputs, filters). ``keras.optimizers.Muon`` uses AdamW for
    it.

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


def _recipe(peak: float, make: Callable[[float, int], keras.optimizers.Optimizer], **options: Any) -> Recipe:
    """Training recipe from a function of the peak rate and the number of updates."""
    return Recipe(lambda steps, scale: make(peak * scale, steps), learning_rate=peak, **options)


def _muon(rate: float, steps: int) -> KernelMuon:
    """Muon for all matrices except the last, and SGD with Nesterov momentum for the rest. The rate falls linearly."""
    # airbench94_muon sums its loss over a batch of 2,000. For Keras's mean loss, SGD's rate is 2,000 times the
    # published 0.67, times 1 / 256 because the model scales its logits by 1 / 16.
    schedule = keras.optimizers.schedules.PolynomialDecay(rate, steps, end_learning_rate=0.0)
    return KernelMuon(
        schedule,
        sgd_ratio=5.2 / 0.24,
        # Relative to Muon's rate, with a momentum of 0.85, this equals the published 4e-3 per step.
        weight_decay=0.11,
        exclude=(r"(^|/)embedding[^/]*/",),
        # The published rate of biases is 0.053 · 2,000.
        rates={r"/(bias|beta)$": 20.0},
    )


# The tutorials use these two training recipes.
BASELINE = _recipe(1e-3, lambda rate, steps: keras.optimizers.RMSprop(rate))
ADAM = _recipe(1e-3, lambda rate, steps: keras.optimizers.Adam(rate))
# In a few thousand steps, beta_2 = 0.99 follows the gradients better than the default (docs/LOG.md).
ONECYCLE = _recipe(
    5e-3,
    lambda rate, steps: keras.optimizers.Nadam(WarmUpLinearDecay(rate, steps, warm_up=0.2), beta_2=0.99),
    label_smoothing=0.1,
)
# LAMB is meant for batches of thousands (You et al. 2020).
LAMB = _recipe(1e-2, lambda rate, steps: keras.optimizers.Lamb(WarmUpLinearDecay(rate, steps, warm_up=0.2)))
# This recipe is for recurrent models. Early gradients of long sequences exceed a norm of 1.
ADAM_COSINE = _recipe(
    4e-3,
    lambda rate, steps: keras.optimizers.Adam(
        WarmUpCosineDecay(rate, steps, warm_up=0.02), beta_2=0.99, global_clipnorm=1.0
    ),
)
MUON = _recipe(0.24, _muon, label_smoothing=0.2, reference_batch_size=2_000, decays_vectors=True)
# This recipe is for pretrained models, whose weights should change little.
FINE_TUNING = _recipe(
    3e-4, lambda rate, steps: keras.optimizers.Adam(WarmUpCosineDecay(rate, steps, warm_up=0.1)), label_smoothing=0.1
)
