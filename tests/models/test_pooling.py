"""The quick gradient of max pooling: TensorFlow's own, bit for bit, and nothing of it in what is saved."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def setup_module() -> None:
    global _pooled, keras, cpu_kernels, use_fast_kernels, tf
    import keras
    import tensorflow as tf

    from pipeline.models import cpu_kernels
    from pipeline.models.cpu_kernels import _pooled, use_fast_kernels


@pytest.fixture(autouse=True)
def without_one_dnn(monkeypatch):
    monkeypatch.setattr(cpu_kernels, "_has_onednn", lambda: False)


@settings(deadline=None, max_examples=8)
@given(
    shape=st.tuples(st.integers(1, 3), st.sampled_from([2, 4, 5]), st.sampled_from([3, 8]), st.integers(1, 3)),
    levels=st.sampled_from([1, 2, 5, 1_000]),
    seed=st.integers(0, 2**16),
    dtype=st.sampled_from(["float32", "bfloat16", "float64"]),
)
def test_the_gradient_is_tensorflows_even_where_pixels_are_equally_large(shape, levels, seed, dtype):
    random = np.random.default_rng(seed)
    # So close together that float32 does not tell those of float64 apart.
    images = tf.cast(1 + random.integers(-levels, levels + 1, shape) * (1e-12 if dtype == "float64" else 0.25), dtype)
    pooled = (shape[0], shape[1] // 2, shape[2] // 2, shape[3])
    gradient = tf.cast(random.normal(size=pooled), dtype)

    def of(pool) -> tuple[np.ndarray, np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch(images)
            found = pool(images)
        return found.numpy(), tape.gradient(found, images, gradient).numpy()

    for expected, found in zip(of(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID")), of(_pooled), strict=True):
        np.testing.assert_array_equal(expected.astype(np.float32), found.astype(np.float32))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradients_gradient_is_tensorflows(dtype):
    random = np.random.default_rng(0)
    images = tf.cast(random.normal(size=(2, 5, 4, 3)), dtype)

    def penalty(pool) -> np.ndarray:
        with tf.GradientTape() as outer:
            outer.watch(images)
            with tf.GradientTape() as inner:
                inner.watch(images)
                found = tf.reduce_sum(pool(images) ** 3)
            squared = tf.reduce_sum(inner.gradient(found, images) ** 2)
        return outer.gradient(squared, images).numpy().astype(np.float32)

    expected = penalty(lambda x: tf.nn.max_pool2d(x, 2, 2, "VALID"))
    assert np.any(expected)
    np.testing.assert_allclose(penalty(_pooled), expected, rtol={"float32": 1e-5, "bfloat16": 0.05}[dtype])


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_an_odd_side_is_pooled_as_ever(padding):
    images = np.random.default_rng(0).normal(size=(2, 7, 8, 1)).astype(np.float32)
    plain, quick = (keras.Sequential([keras.layers.MaxPooling2D(2, padding=padding)]) for _ in range(2))
    use_fast_kernels(quick)
    np.testing.assert_array_equal(plain(images), quick(images))

    def gradient(model):
        inputs = tf.constant(images)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            found = tf.reduce_sum(model(inputs) ** 2)
        return tape.gradient(found, inputs).numpy()

    np.testing.assert_array_equal(gradient(plain), gradient(quick))


def test_a_network_that_is_a_class_of_its_own_trains():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.pooling, self.dense = keras.layers.MaxPooling2D(2), keras.layers.Dense(2)

        def call(self, images):
            return self.dense(keras.ops.mean(self.pooling(images), axis=(1, 2)))

    model = Own()
    use_fast_kernels(model)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(0)
    images, labels = random.normal(size=(16, 16, 16, 3)).astype(np.float32), random.integers(0, 2, 16)
    assert np.isfinite(model.fit(images, labels, verbose=0).history["loss"]).all()
