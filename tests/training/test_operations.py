"""The floating-point operations of a step. Recurrent layers run in loops, which no backend counts more than once."""

import os
import subprocess
import sys

import pytest

EMBEDDING, UNITS, LABELS, BATCH = 32, 64, 32, 4
CODE = """
import sys
import keras, numpy as np
from pipeline.config import TrainSettings
from pipeline.hardware.placement import runtime_of
from pipeline.training.operations import step_flops

embedding, units, labels, batch = map(int, sys.argv[2:])
runtime = runtime_of(TrainSettings(backend=sys.argv[1]))
for length in (2, 6):
    layers = keras.layers
    recurrent = [layers.LSTM(units, return_sequences=True) for _ in range(2)]
    ends = layers.Embedding(labels, embedding), layers.Dense(labels)
    model = keras.Sequential([keras.Input((length,)), ends[0], *recurrent, ends[1]])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    tokens = np.zeros((batch, length), np.uint8)
    print(step_flops(runtime, model, (tokens, tokens.astype(np.int32))))
whole = keras.Model(model.inputs, model.outputs)
print(step_flops(runtime, whole, (tokens, tokens)))
"""


@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.slow)])
def test_each_token_of_a_recurrent_model_takes_three_times_the_products_of_its_layers(backend):
    if backend == "jax":
        pytest.importorskip("jax", reason="make setup EXTRA=jax")
    sizes = map(str, (EMBEDDING, UNITS, LABELS, BATCH))
    done = subprocess.run(
        [sys.executable, "-c", CODE, backend, *sizes],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": backend},
    )
    assert done.returncode == 0, done.stderr
    short, long, of_another_form = done.stdout.split()
    forward = 2 * (4 * UNITS * (EMBEDDING + UNITS) + 4 * UNITS * 2 * UNITS + UNITS * LABELS)
    # Forward, and backward to weights and inputs. Elementwise operations are a large share in so small a model.
    products = 4 * BATCH * 3 * forward
    assert 1 < (float(long) - float(short)) / products < 2
    assert of_another_form == "None"
