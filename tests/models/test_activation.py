"""The quick GELU: Keras's own, but for rounding, and nothing of it in what is saved."""

import math

import numpy as np
import pytest


def setup_module() -> None:
    global without_fast_kernels, keras, use_fast_kernels, special, stats, tf
    import keras
    import tensorflow as tf
    from scipy import special, stats

    from pipeline.models.cpu_kernels import use_fast_kernels, without_fast_kernels


def is_quick(layer: "keras.layers.Layer") -> bool:
    return "call" in vars(layer)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_and_gradients_are_those_of_the_formula_rounded_once(dtype):
    layer = keras.layers.Activation("gelu", dtype=dtype)
    use_fast_kernels(keras.Sequential([keras.Input((1,), dtype=dtype), layer]))
    assert is_quick(layer)
    points = np.concatenate([np.linspace(-12, 12, 4_801), [0.0, -0.0, -30, 30, 1e4, -1e4]]).astype(np.float32)
    x = tf.cast(points[:, None], dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        found = layer(x)
    exact = x.numpy().astype(np.float64)
    cdf = special.erfc(-exact / math.sqrt(2)) / 2
    rounding = {"float32": 2e-6, "bfloat16": 2**-8}[dtype]
    slope = cdf + exact * stats.norm.pdf(exact)
    for what, got, right in (("values", found, exact * cdf), ("gradient", tape.gradient(found, x), slope)):
        np.testing.assert_allclose(got.numpy().astype(np.float64), right, rtol=rounding, atol=1e-6, err_msg=what)


def test_it_is_kerass_own_where_it_is_evaluated():
    points = np.linspace(-4, 4, 10_001)[:, None]
    layer = keras.layers.Activation("gelu", dtype="bfloat16")
    expected = layer(points).numpy()
    use_fast_kernels(keras.Sequential([keras.Input((1,)), layer]))
    assert np.any(layer(points).numpy() != expected)
    with without_fast_kernels():
        np.testing.assert_array_equal(layer(points).numpy(), expected)
