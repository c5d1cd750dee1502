"""Training throughput: our stream against arrays in memory (6), and against what others train with (8)."""

from collections.abc import Callable
from statistics import median

import keras
import numpy as np
import tensorflow as tf

from benchmarks import BASELINE
from benchmarks.baselines import tutorial
from benchmarks.baselines.record_writer import arrays
from benchmarks.baselines.torch_process import TorchProcess
from benchmarks.comparison import Comparison, interleaved, ratios, seconds_of
from benchmarks.data import Bench
from pipeline.hardware.placement import place
from pipeline.settings.training import TrainSettings
from pipeline.streams.tf_data import InputStream
from pipeline.training.model import STEPS_PER_EXECUTION, compiled_model

# Three executions: a second and a half of training.
STEPS = 3 * STEPS_PER_EXECUTION


def measure(bench: Bench) -> list[Comparison]:
    """Rows 6 and 8."""
    settings = TrainSettings(**BASELINE, device="cpu")
    size = settings.global_batch_size
    stream = InputStream(bench.split("train"), global_batch_size=size, seed=0, in_memory=True)
    images, labels = arrays(bench.split("train"))
    model = _model(bench, settings, stream)
    taught, published = tutorial.data(images[: STEPS * size], labels[: STEPS * size]), tutorial.model()
    epoch = iter(range(1_000))
    constant = tf.data.Dataset.from_tensors((images[:size], labels[:size])).repeat(STEPS)
    # See streams/tf_data.py: an autotuned iterator is slow to close, which is no part of a step.
    options = tf.data.Options()
    options.autotune.enabled = False
    constant = constant.with_options(options)

    def rate(action: Callable[[], object]) -> float:
        return STEPS * size / seconds_of(action)

    with TorchProcess(images, labels, bench.folder) as torch:
        values = interleaved(
            {
                "ours": lambda: rate(lambda: model.fit(stream.training(next(epoch)).take(STEPS), verbose=0)),
                "arrays": lambda: rate(lambda: _fit_arrays(model, images, labels, size)),
                "step": lambda: rate(lambda: model.fit(constant, verbose=0)),
                "tutorial": lambda: rate(lambda: published.fit(*taught, batch_size=tutorial.BATCH_SIZE, verbose=0)),
                "torch": lambda: torch.training_rate("float32", size, STEPS),
                "torch_bfloat16": lambda: torch.training_rate("bfloat16", size, STEPS),
            },
            bench.rounds,
            warm_up=True,
        )
    limit = f"the step alone, on one batch over and over: {median(values['step']):,.0f} images/s"
    return [
        _row(
            "6",
            "fit from our stream",
            "fit on arrays in memory, same model and settings",
            values,
            "arrays",
            0.98,
            limit,
        ),
        _row(
            "8a",
            "training throughput, baseline CNN",
            "the tutorial's program as published",
            values,
            "tutorial",
            2,
            limit,
        ),
        _row("8b", "training throughput, baseline CNN", "PyTorch, eager, float32", values, "torch", 3, limit),
        _row("8c", "training throughput, baseline CNN", "PyTorch, eager, bfloat16", values, "torch_bfloat16", 3, limit),
    ]


def _row(number: str, what: str, against: str, values: dict, baseline: str, goal: float, limit: str) -> Comparison:
    return Comparison(
        number=number,
        what=what,
        against=against,
        unit="images/s",
        ours=values["ours"],
        theirs=values[baseline],
        figure="times as fast",
        figures=ratios(values["ours"], values[baseline]),
        goal=goal,
        at_least=True,
        limit=limit,
    )


def _model(bench: Bench, settings: TrainSettings, stream: InputStream) -> keras.Model:
    return compiled_model(bench.manifest, settings, place(settings), stream.steps_per_epoch)


def _fit_arrays(model: keras.Model, images: np.ndarray, labels: np.ndarray, size: int) -> None:
    model.fit(images[: STEPS * size], labels[: STEPS * size], batch_size=size, verbose=0)
