"""The operations of a step: of recurrent layers too, whose loops no backend counts more than once."""

import os
import subprocess
import sys

import pytest

CODE = """
import sys
import keras, numpy as np
from pipeline.config import TrainSettings
from pipeline.hardware.placement import runtime_of
from pipeline.networks.char_lstm import char_lstm, shakespeare_lstm
from pipeline.training.operations import step_flops

runtime = runtime_of(TrainSettings(backend=sys.argv[1]))
for build in (char_lstm, shakespeare_lstm):
    for length in (2, 50):
        model = build((length,), 65)
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
        tokens = np.zeros((4, length), np.uint8)
        model.fit(tokens, tokens, verbose=0)
        print(step_flops(runtime, model, (tokens, tokens.astype(np.int32))))
model = char_lstm((2,), 65)
whole = keras.Model(model.inputs, model.outputs)
print(step_flops(runtime, whole, (tokens, tokens)))
"""


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_each_token_of_a_recurrent_network_takes_its_layers_products_three_times(backend):
    if backend == "jax":
        pytest.importorskip("jax", reason="make setup EXTRA=jax")
    env = {**os.environ, "KERAS_BACKEND": backend}
    command = [sys.executable, "-c", CODE, backend]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    *counted, of_another_form = done.stdout.split()
    small = 2 * (4 * 256 * (64 + 256) + 256 * 65)
    large = 2 * (4 * 512 * (512 + 512) + 4 * 512 * (512 + 512) + 512 * 65)
    for (short, long), forward in zip((counted[:2], counted[2:]), (small, large), strict=True):
        # Forwards, and backwards to weights and inputs; beside that what is elementwise, a few hundredths.
        assert float(long) - float(short) == pytest.approx(48 * 4 * 3 * forward, rel=0.06)
    assert of_another_form == "None"
