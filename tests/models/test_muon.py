"""Muon: the updates of a reference in NumPy, on both backends; saved and restored to the bit."""

import os
import subprocess
import sys

import numpy as np
import pytest

from pipeline.artifacts.manifest import read_manifest
from pipeline.hardware.placement import place
from pipeline.settings.training import TrainSettings


def setup_module() -> None:
    global KernelMuon, MUON, airbench_convnet_small, compiled_model, keras, last_matrices, make_optimizer, orthogonal
    import keras

    from pipeline.models.airbench_convnet import airbench_convnet_small
    from pipeline.models.training_recipes import MUON, KernelMuon, last_matrices, make_optimizer, orthogonal
    from pipeline.training.model import compiled_model


SHAPES = {"conv/kernel": (3, 3, 4, 6), "wide/kernel": (2, 12), "conv/bias": (6,), "head/kernel": (6, 3)}
OPTIONS = {"sgd_ratio": 0.5}


def reference(values, gradients, rates, *, weight_decay):
    """A step of each (rate, gradients) on float64 copies of the values, as the papers have it."""
    values = {name: value.astype(np.float64) for name, value in values.items()}
    momenta = {name: np.zeros_like(value) for name, value in values.items()}
    for rate, given in zip(rates, gradients, strict=True):
        for name, value in values.items():
            value = value - value * weight_decay * rate
            is_matrix = name.endswith("kernel") and "head" not in name
            share = 0.6 if is_matrix else 0.85
            momenta[name] = share * momenta[name] + given[name]
            ahead = given[name] + share * momenta[name]
            if is_matrix:
                matrix = ahead.reshape(-1, value.shape[-1])
                left, singular, right = np.linalg.svd(matrix / np.linalg.norm(matrix), full_matrices=False)
                for _ in range(3):
                    singular = 3.4445 * singular - 4.7750 * singular**3 + 2.0315 * singular**5
                value = value * np.sqrt(value.shape[-1]) / np.linalg.norm(value)
                values[name] = value - rate * ((left * singular) @ right).reshape(value.shape)
            else:
                values[name] = value - rate * OPTIONS["sgd_ratio"] * ahead
    return values


def steps(seed=0, count=4):
    rng = np.random.default_rng(seed)
    values = {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
    gradients = [
        {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()} for _ in range(count)
    ]
    return values, gradients


def variables_of(values):
    found = []
    for path, value in values.items():
        scope, name = path.split("/")
        with keras.name_scope(scope, caller=scope):
            found.append(keras.Variable(value, name=name))
    return found


def make(**changes):
    schedule = keras.optimizers.schedules.PolynomialDecay(0.3, 8, end_learning_rate=0.0)
    return KernelMuon(schedule, exclude=["head"], weight_decay=0.1, **{**OPTIONS, **changes})


def applied(optimizer, variables, gradients):
    for given in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(given[name]) for name in SHAPES], variables)
    return [keras.ops.convert_to_numpy(variable).copy() for variable in variables]


def compare_with_the_reference():
    values, gradients = steps()
    rates = [0.3 * (1 - number / 8) for number in range(len(gradients))]
    expected = reference(values, gradients, rates, weight_decay=0.1)
    found = applied(make(), variables_of(values), gradients)
    for name, value in zip(SHAPES, found, strict=True):
        np.testing.assert_allclose(value, expected[name], rtol=2e-4, atol=2e-5, err_msg=name)


def test_updates_are_those_of_the_reference():
    compare_with_the_reference()


@pytest.mark.slow
def test_updates_are_those_of_the_reference_on_jax():
    code = "import test_muon; test_muon.setup_module(); test_muon.compare_with_the_reference()"
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": os.pathsep.join(["tests/models", "."])}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=300)


@pytest.mark.parametrize("shape", [(5, 40), (40, 5), (7, 7)])
def test_singular_values_come_near_one(shape):
    matrix = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    found = keras.ops.convert_to_numpy(orthogonal(keras.ops.convert_to_tensor(matrix), 5))
    singular = np.linalg.svd(found, compute_uv=False)
    assert found.shape == shape
    assert 0.6 < singular.min() <= singular.max() < 1.3
    assert not keras.ops.convert_to_numpy(orthogonal(keras.ops.zeros(shape), 3)).any()


def test_it_is_made_again_from_its_description_and_goes_on_to_the_bit_with_its_variables():
    values, gradients = steps()
    variables = variables_of(values)
    whole = applied(make(), variables_of(values), gradients)
    optimizer = make()
    applied(optimizer, variables, gradients[:2])
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.get_config() == optimizer.get_config()
    again.build(variables)
    for variable, value in zip(again.variables, optimizer.variables, strict=True):
        variable.assign(value)
    for one, other in zip(applied(again, variables, gradients[2:]), whole, strict=True):
        np.testing.assert_array_equal(one, other)


def of_layers(*layers, functional):
    inputs = keras.Input((8, 8, 3))
    if not functional:
        return keras.Sequential([inputs, *layers])
    outputs = inputs
    for layer in layers:
        outputs = layer(outputs)
    return keras.Model(inputs, outputs)


def test_a_network_is_compiled_with_its_last_layer_left_to_sgd(small_records):
    settings = TrainSettings(
        device="cpu", precision="float32", model="mnist_dense", training_recipe="muon", epochs=5, global_batch_size=128
    )
    placement = place(settings)
    model = compiled_model(read_manifest(small_records), settings, placement, 3)
    found = zip(model.trainable_variables, model.optimizer.are_matrices, strict=True)
    assert [tuple(variable.shape) for variable, is_matrix in found if is_matrix] == [(32 * 32 * 3, 512)]


def of_muon(model):
    """The paths, layer/variable, of what Muon updates in training."""
    optimizer = make_optimizer(MUON, TrainSettings(global_batch_size=2_000), total_steps=2)
    optimizer.exclude_from_muon(last_matrices(model))
    optimizer.build(model.trainable_variables)
    paths = ["/".join(variable.path.split("/")[-2:]) for variable in model.trainable_variables]
    return [path for path, is_matrix in zip(paths, optimizer.are_matrices, strict=True) if is_matrix]


@pytest.mark.parametrize("functional", [True, False])
@pytest.mark.parametrize("name", ["head", "logits", "dense", "mine"])
def test_the_last_layer_and_vectors_are_left_to_sgd_whatever_they_are_called(name, functional):
    """A network's layers have a path that begins with their own name, or with the network's."""
    layers = [keras.layers.Conv2D(4, 3, name="first"), keras.layers.BatchNormalization(name="norm")]
    layers += [keras.layers.Flatten(), keras.layers.Dense(5, name="hidden"), keras.layers.Dense(2, name=name)]
    model = of_layers(*layers, keras.layers.Softmax(), functional=functional)
    assert of_muon(model) == ["first/kernel", "hidden/kernel"]
    # One that is not trained is the last layer all the same.
    model.get_layer(name).trainable = False
    assert of_muon(model) == ["first/kernel", "hidden/kernel"]


def test_the_last_layer_of_a_network_inside_a_network_is_left_to_sgd():
    inner = of_layers(
        keras.layers.Conv2D(4, 3, name="conv"), keras.layers.Flatten(), keras.layers.Dense(2), functional=True
    )
    assert of_muon(of_layers(inner, keras.layers.Softmax(), functional=False)) == ["conv/kernel"]


def test_the_recipe_moves_biases_and_shifts_twenty_times_as_far_as_sgd_alone():
    model = airbench_convnet_small((32, 32, 3), 10)
    moved = {}
    for with_rates in (True, False):
        optimizer = make_optimizer(MUON, TrainSettings(global_batch_size=2_000), total_steps=9)
        optimizer.rates = optimizer.rates if with_rates else {}
        optimizer.exclude_from_muon(last_matrices(model))
        variables = [variable for variable in model.trainable_variables if not variable.path.startswith("conv_")]
        before = [keras.ops.convert_to_numpy(variable) for variable in variables]
        optimizer.build(variables)
        optimizer.apply([keras.ops.ones_like(variable) for variable in variables], variables)
        for variable, old in zip(variables, before, strict=True):
            moved.setdefault(variable.path, []).append(np.abs(keras.ops.convert_to_numpy(variable) - old).mean())
            variable.assign(old)
    factors = {path: of_recipe / alone for path, (of_recipe, alone) in moved.items()}
    assert {path for path, factor in factors.items() if factor == pytest.approx(20, rel=1e-3)} == {
        path for path in moved if path.endswith("/beta")
    }
    assert [path for path, factor in factors.items() if factor == pytest.approx(1, rel=1e-3)] == ["head/kernel"]


def test_an_embedding_is_left_to_sgd():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Embedding(9, 4), keras.layers.LSTM(5)])
    model.add(keras.layers.Dense(9))
    assert of_muon(model) == ["lstm_cell/kernel", "lstm_cell/recurrent_kernel"]


def test_a_network_of_no_matrices_has_no_last_ones():
    assert last_matrices(keras.Sequential([keras.Input((6,)), keras.layers.BatchNormalization()])) == []
