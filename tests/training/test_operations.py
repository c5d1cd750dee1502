"""The floating-point operations of a step. Recurrent layers run in loops, which no backend counts more than once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EMBEDDING, UNITS, LABELS, BATCH = 32, 64, 32, 4
SHORT, LONG = 2, 6


def count_operations(backend: str) -> list[float | None]:
    """Operations of a step on short and on long sequences, and of a model that is no stack of layers."""
    import keras
    import numpy as np

    from pipeline.hardware.placement import runtime_called
    from pipeline.training.timing import step_flops

    layers, runtime, counted = keras.layers, runtime_called(backend), []
    for length in (SHORT, LONG):
        recurrent = [layers.LSTM(UNITS, return_sequences=True) for _ in range(2)]
        ends = layers.Embedding(LABELS, EMBEDDING), layers.Dense(LABELS)
        model = keras.Sequential([keras.Input((length,)), ends[0], *recurrent, ends[1]])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        model.optimizer.build(model.trainable_variables)
        tokens = np.zeros((BATCH, length), np.uint8)
        counted.append(step_flops(runtime, model, (tokens, tokens.astype(np.int32))))
    return [*counted, step_flops(runtime, keras.Model(model.inputs, model.outputs), (tokens, tokens))]


def check_operations(short: float, long: float, of_another_form: float | None) -> None:
    forward = 2 * (4 * UNITS * (EMBEDDING + UNITS) + 4 * UNITS * 2 * UNITS + UNITS * LABELS)
    # Forward, and backward to weights and inputs. Elementwise operations add a few percent.
    assert long - short == pytest.approx((LONG - SHORT) * BATCH * 3 * forward, rel=0.1)
    assert of_another_form is None


def test_each_token_of_a_recurrent_model_takes_three_times_the_products_of_its_layers():
    check_operations(*count_operations("tensorflow"))


@pytest.mark.slow
def test_jax_counts_as_tensorflow_does():
    pytest.importorskip("jax", reason="make setup EXTRA=jax")
    code = "import test_operations; print(*test_operations.count_operations('jax'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), "."))},
    )
    assert done.returncode == 0, done.stderr
    short, long, of_another_form = done.stdout.split()
    check_operations(float(short), float(long), None if of_another_form == "None" else float(of_another_form))
