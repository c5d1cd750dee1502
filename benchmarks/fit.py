"""Training step: against other frameworks, and against the matrix products of the same layers (rows 1 and 2)."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

import keras
import numpy as np
import tensorflow as tf

from benchmarks import BASELINE
from benchmarks.baselines import tutorial
from benchmarks.baselines.record_writer import arrays
from benchmarks.baselines.torch_process import TorchProcess
from benchmarks.comparison import Comparison, interleaved, seconds_of, speedup
from benchmarks.data import Bench
from pipeline.hardware.placement import choose_precision, place
from pipeline.settings.training import TrainSettings
from pipeline.streams.tf_data import InputStream
from pipeline.training.model import compiled_model

# Model → its settings and the number of steps per round.
MODELS = {
    "baseline_cnn": (BASELINE, 16),
    "airbench_convnet_small": (
        BASELINE | {"model": "airbench_convnet_small", "training_recipe": "muon", "global_batch_size": 500},
        4,
    ),
}
# Other tool → its description, and the goal in each precision.
_AGAINST = {
    "eager": ("PyTorch, eager, channels last", {"float32": 1.5, "bfloat16": 1.5}),
    "compiled": ("PyTorch, torch.compile, channels last", {"float32": 1.2, "bfloat16": 1.5}),
    "tutorial": ("the published program of the tutorial", {"float32": 1.39}),
    "arrays": ("`fit` on arrays in memory", {"float32": 0.98}),
}
_TIMED_CALLS = 5


@dataclass(frozen=True)
class _Layer:
    """Seconds of a layer, forward and backward, and of the matrix products of the same sizes."""

    name: str
    seconds: float
    products_seconds: float


def measure(bench: Bench) -> list[Comparison]:
    """Rows 1 and 2. Row 2 needs a processor that computes in bfloat16."""
    precisions = ["float32"]
    if (chosen := choose_precision("auto", place(TrainSettings(**BASELINE, device="cpu")), lambda: False)) != "float32":
        precisions.append(chosen)
    images, labels = arrays(bench.split("train"))
    rows = []
    with TorchProcess(images, labels, bench.folder) as torch:
        for precision in precisions:
            for letter, name in zip("ab", MODELS, strict=True):
                rows += _rows(bench, torch, images, labels, name, precision, letter)
    return rows


def _rows(
    bench: Bench, torch: TorchProcess, images: np.ndarray, labels: np.ndarray, name: str, precision: str, letter: str
) -> list[Comparison]:
    own, steps = MODELS[name]
    settings = TrainSettings(**own, device="cpu", precision=precision)
    size, split = settings.global_batch_size, bench.split("train")
    stream = InputStream(split, global_batch_size=size, seed=0, in_memory=True)
    model = compiled_model(bench.manifest, settings, place(settings), stream.steps_per_epoch)
    options = tf.data.Options()
    # An autotuned iterator is slow to close, which is no part of a step.
    options.autotune.enabled = False
    constant = tf.data.Dataset.from_tensors((images[:size], labels[:size])).repeat(steps).with_options(options)
    epoch = iter(range(1_000))
    of_torch = partial(torch.training_rate, network=name, precision=precision, batch_size=size, steps=steps)

    def rate(action: Callable[[], object]) -> float:
        return steps * size / seconds_of(action)

    actions = {
        "ours": lambda: rate(lambda: model.fit(stream.training(next(epoch)).take(steps), verbose=0)),
        "step": lambda: rate(lambda: model.fit(constant, verbose=0)),
        "eager": lambda: of_torch(is_compiled=False),
        "compiled": lambda: of_torch(is_compiled=True),
    }
    if name == "baseline_cnn" and precision == "float32":
        data, published = (images[: steps * size], labels[: steps * size]), tutorial.model()
        taught = tutorial.data(*data)
        actions |= {
            "arrays": lambda: rate(lambda: model.fit(*data, batch_size=size, verbose=0)),
            "tutorial": lambda: rate(lambda: published.fit(*taught, batch_size=tutorial.BATCH_SIZE, verbose=0)),
        }
    values = interleaved(actions, bench.rounds, warm_up=True)
    return list(_compared(name, precision, letter, size, _layers(model, size), values))


def _compared(
    name: str, precision: str, letter: str, size: int, layers: Sequence[_Layer], values: Mapping[str, Sequence[float]]
) -> Iterator[Comparison]:
    number = f"{1 if precision == 'float32' else 2}{letter}"
    best = sum(layer.products_seconds for layer in layers)
    row = {
        "what": f"training step of `{name}`, {precision}, batch {size}",
        "unit": "images/s",
        "ours": values["ours"],
        "limit": f"the step alone, on one batch: {median(values['step']):,.0f} images/s. The matrix products of its "
        f"layers alone: {size / best:,.0f} images/s",
    }
    for key in [key for key in _AGAINST if key in values]:
        against, goals = _AGAINST[key]
        yield speedup(f"{number} {key}", against, values[key], goals[precision], **row)
    per_layer = ", ".join(
        f"`{one.name}` {one.seconds * 1e3:.1f} ms ({one.products_seconds / one.seconds:.0%})" for one in layers
    )
    yield Comparison(
        number=f"{number} limit",
        against="matrix products of the sizes of its layers",
        figure="of the step's time",
        figures=[best * one / size for one in values["step"]],
        goal=0.8,
        at_least=True,
        note=f"Time of each layer alone, forward and backward, with the share of its matrix products: {per_layer}",
        **row,
    )


def _layers(model: keras.Model, batch_size: int) -> list[_Layer]:
    kinds = keras.layers.Conv2D | keras.layers.Dense
    layers = [layer for layer in model.layers if isinstance(layer, kinds)]
    return [_timed(layer, batch_size, is_first=layer is layers[0]) for layer in layers]


def _timed(layer: keras.Layer, batch_size: int, *, is_first: bool) -> _Layer:
    """Time a layer with random inputs. The first layer has no gradient of its inputs."""
    shape, dtype = (batch_size, *layer.input.shape[1:]), layer.compute_dtype
    inputs = tf.cast(tf.random.normal(shape), dtype)
    gradient = tf.cast(tf.random.normal((batch_size, *layer.output.shape[1:])), dtype)
    variables = [variable.value for variable in layer.trainable_variables]

    @tf.function(autograph=False)
    def layer_pass() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs)
        sources = [*variables, *([] if is_first else [inputs])]
        return [outputs, *(tape.gradient(outputs, sources, output_gradients=gradient) if sources else [])]

    inner, filters = int(np.prod(layer.kernel.shape[:-1])), layer.kernel.shape[-1]
    positions = batch_size * int(np.prod(layer.output.shape[1:-1]))
    patches, kernel, of_outputs = (
        tf.cast(tf.random.normal(size), dtype) for size in ((positions, inner), (inner, filters), (positions, filters))
    )

    @tf.function(autograph=False)
    def products() -> list[tf.Tensor]:
        results = [patches @ kernel]
        if layer.trainable:
            results.append(tf.matmul(patches, of_outputs, transpose_a=True))
        if not is_first:
            results.append(tf.matmul(of_outputs, kernel, transpose_b=True))
        return results

    return _Layer(layer.name, _seconds(layer_pass), _seconds(products))


def _seconds(function: Callable[[], list[tf.Tensor]]) -> float:
    function()
    times = []
    for _ in range(_TIMED_CALLS):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return median(times)
