"""How a network is computed: by what is quick where it is trained on a CPU, and counted as Keras computes it."""

import numpy as np
import pytest

from pipeline.artifacts.manifest import read_manifest
from pipeline.hardware.placement import place
from pipeline.settings.training import TrainSettings


def setup_module() -> None:
    global compiled_model, keras, without_fast_kernels
    import keras

    from pipeline.models.cpu_kernels import without_fast_kernels
    from pipeline.training.model import compiled_model


BATCH = 8


def compiled(records, steps=3, **how) -> "keras.Model":
    how = {"model": "airbench_convnet_small", "training_recipe": "onecycle", "epochs": 5, **how}
    settings = TrainSettings(device="cpu", global_batch_size=BATCH, **how)
    placement = place(settings)
    return compiled_model(read_manifest(records), settings, placement, steps, outputs="logits")


@pytest.mark.parametrize(("jit_compile", "expected"), [("false", True), ("true", False)])
def test_layers_are_computed_by_what_is_quick_unless_xla_compiles_the_step(small_records, jit_compile, expected):
    model = compiled(small_records, precision="float32", jit_compile=jit_compile, model="airbench_convnet")
    quick = {layer.name for layer in model.layers if {"call", "convolution_op"} & vars(layer).keys()}
    assert ({"conv_2b", "norm_3a", "gelu_1a"} <= quick) is expected
    assert bool(quick) is expected


def test_the_schedule_of_the_learning_rate_spans_all_epochs(small_records):
    optimizer = compiled(
        small_records, steps=5, epochs=3, model="tests.tiny_model:build", training_recipe="onecycle"
    ).optimizer
    rates = []
    for step in (0, 4, 5, 9, 14, 15):
        optimizer.iterations.assign(step)
        rates.append(float(optimizer.learning_rate))
    assert min(rates[:-1]) > rates[-1] == pytest.approx(0, abs=1e-6)


def step_flops(model: "keras.Model") -> float:
    batch = np.zeros((BATCH, 32, 32, 3), np.uint8), np.zeros(BATCH, np.int32)
    with without_fast_kernels():
        return place(TrainSettings(device="cpu")).runtime.step_flops(model, batch)


def test_the_operations_of_a_step_do_not_depend_on_the_precision(small_records):
    counted = []
    for precision in ("float32", "bfloat16"):
        counted.append(step_flops(compiled(small_records, precision=precision, training_recipe="baseline")))
    assert counted[0] == pytest.approx(counted[1], rel=0.01)
    # Its layers multiply 33.1 million times per image, forward and twice backward. Elementwise operations come on top.
    assert 6 * 33.1e6 * 0.95 * BATCH < counted[0] < 6 * 33.1e6 * 1.3 * BATCH


@pytest.mark.slow
def test_the_operations_of_muon_are_counted(small_records):
    model = compiled(small_records, precision="float32", training_recipe="muon")
    counted = step_flops(model)
    assert 6 * 33.1e6 * 0.95 * BATCH < counted - muon_flops(model) < 6 * 33.1e6 * 1.3 * BATCH


def muon_flops(model: "keras.Model") -> float:
    """Of three steps of Newton and Schulz with each kernel as a matrix."""
    found = 0.0
    for variable, is_matrix in zip(model.trainable_variables, model.optimizer.are_matrices, strict=True):
        if is_matrix:
            rows, columns = sorted((variable.shape[-1], int(np.prod(variable.shape[:-1]))))
            found += 3 * 2 * (2 * rows * rows * columns + rows**3)
    return found


def test_a_recurrent_model_has_no_count_of_operations():
    # Both backends would count its loop once.
    inner = keras.Sequential([keras.layers.LSTM(4)])
    model = keras.Sequential([keras.Input((32, 3)), inner])
    model.compile("sgd", "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    batch = np.ones((BATCH, 32, 3), np.float32), np.ones((BATCH, 4), np.float32)
    assert place(TrainSettings(device="cpu")).runtime.step_flops(model, batch) is None
