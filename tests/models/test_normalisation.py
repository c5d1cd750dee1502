"""The quick normalization of a batch: Keras's own, but for rounding, and nothing of it in what is saved."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def setup_module() -> None:
    global without_fast_kernels, keras, use_fast_kernels, tf
    import keras
    import tensorflow as tf

    from pipeline.models.cpu_kernels import use_fast_kernels, without_fast_kernels


def is_quick(layer: "keras.layers.Layer") -> bool:
    return "call" in vars(layer)


def pair(layer: "keras.layers.Layer", shape: tuple[int, ...], *, seed: int = 0) -> "list[keras.Model]":
    """Two networks of that layer alone with the same weights, drawn; the second is quick."""
    keras.utils.set_random_seed(seed)
    plain = keras.Sequential([keras.Input(shape), layer])
    for weight in layer.weights:
        weight.assign(np.random.default_rng(seed).uniform(0.5, 2, weight.shape))
    quick = keras.models.clone_model(plain)
    quick.set_weights(plain.get_weights())
    use_fast_kernels(quick)
    return [plain, quick]


def trained(model: "keras.Model", images: np.ndarray) -> list[np.ndarray]:
    """What it gives in training, the gradients of inputs and weights, and the weights after it."""
    inputs = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        found = tf.cast(model(inputs, training=True), tf.float32)
        # Of a plain sum, or a sum of squares, the inputs' gradient is nothing.
        loss = tf.reduce_sum(found * np.sin(np.arange(images.size, dtype=np.float32)).reshape(images.shape))
    gradients = tape.gradient(loss, [inputs, *model.trainable_variables])
    return [found.numpy(), *(gradient.numpy() for gradient in gradients), *model.get_weights()]


def is_fused(model: "keras.Model", shape: tuple[int, ...], **how) -> bool:
    inputs = tf.TensorSpec((4, *shape), model.inputs[0].dtype)
    graph = tf.function(lambda images: model(images, **how)).get_concrete_function(inputs).graph
    return any("FusedBatchNorm" in operation.type for operation in graph.get_operations())


@settings(deadline=None, max_examples=6)
@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4)),
    batch=st.integers(2, 9),
    scale=st.booleans(),
    center=st.booleans(),
    momentum=st.sampled_from([0.6, 0.99]),
    epsilon=st.sampled_from([1e-5, 1e-3]),
    seed=st.integers(0, 2**16),
)
def test_outputs_gradients_and_running_statistics_are_kerass(shape, batch, scale, center, momentum, epsilon, seed):
    layer = keras.layers.BatchNormalization(scale=scale, center=center, momentum=momentum, epsilon=epsilon)
    plain, quick = pair(layer, shape, seed=seed)
    assert is_fused(quick, shape, training=True)
    images = np.random.default_rng(seed).normal(1, 2, size=(batch, *shape)).astype(np.float32)
    for expected, found in zip(trained(plain, images), trained(quick, images), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(quick(images), plain(images), rtol=1e-4, atol=1e-4)


def test_in_bfloat16_it_is_kerass_but_for_rounding():
    plain, quick = pair(keras.layers.BatchNormalization(dtype="mixed_bfloat16", momentum=0.5), (7, 7, 5))
    assert is_fused(quick, (7, 7, 5), training=True)
    images = np.random.default_rng(0).normal(1, 2, size=(64, 7, 7, 5)).astype(np.float32)
    assert quick(images, training=True).dtype == plain(images, training=True).dtype == tf.bfloat16
    for expected, found in zip(trained(plain, images), trained(quick, images), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-2)
    for expected, found in zip(plain.get_weights(), quick.get_weights(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("how", "shape"),
    [
        ({"renorm": True}, (4, 4, 3)),
        ({"axis": 1}, (4, 4, 3)),
        ({"axis": 2}, (4, 4, 3)),
        ({"dtype": "float64"}, (4, 4, 3)),
        ({"dtype": "bfloat16"}, (4, 4, 3)),
        ({}, (3,)),
        ({}, (5, 3)),
    ],
    ids=str,
)
def test_other_normalizations_are_computed_as_ever(how, shape):
    plain, quick = pair(keras.layers.BatchNormalization(**how), shape)
    assert not is_fused(quick, shape, training=True)
    images = np.random.default_rng(0).normal(size=(8, *shape)).astype(np.float32)
    for expected, found in zip(trained(plain, images), trained(quick, images), strict=True):
        np.testing.assert_array_equal(expected, found)


def test_whole_numbers_are_normalized_as_ever():
    layers = keras.layers
    model = keras.Sequential([keras.Input((4, 4, 3), dtype="uint8"), layers.BatchNormalization(), layers.Flatten()])
    use_fast_kernels(model)
    images = np.random.default_rng(0).integers(0, 256, (8, 4, 4, 3)).astype(np.uint8)
    np.testing.assert_allclose(np.std(model(images, training=True), axis=0).mean(), 1, atol=0.2)


def test_masked_places_are_left_out_as_ever():
    plain, quick = pair(keras.layers.BatchNormalization(), (4, 4, 3))
    rng = np.random.default_rng(0)
    images, mask = rng.normal(size=(8, 4, 4, 3)).astype(np.float32), rng.random((8, 4, 4)) < 0.5
    expected, found = (model.layers[-1](images, training=True, mask=tf.constant(mask)) for model in (plain, quick))
    np.testing.assert_array_equal(found, expected)
    for expected, found in zip(plain.get_weights(), quick.get_weights(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_it_is_kerass_own_where_it_is_not_trained():
    _, quick = pair(keras.layers.BatchNormalization(), (4, 4, 3))
    assert not is_fused(quick, (4, 4, 3), training=False)
    with without_fast_kernels():
        assert not is_fused(quick, (4, 4, 3), training=True)
    assert is_fused(quick, (4, 4, 3), training=True)


def test_a_frozen_one_keeps_its_statistics():
    plain, quick = pair(keras.layers.BatchNormalization(), (4, 4, 3))
    for model in (plain, quick):
        model.trainable = False
    images = np.random.default_rng(0).normal(size=(8, 4, 4, 3)).astype(np.float32)
    before = quick.get_weights()
    for expected, found in zip(trained(plain, images), trained(quick, images), strict=True):
        np.testing.assert_array_equal(expected, found)
    for expected, found in zip(before, quick.get_weights(), strict=True):
        np.testing.assert_array_equal(expected, found)
    assert not is_fused(quick, (4, 4, 3), training=True)
