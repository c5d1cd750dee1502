"""The quick gradient of a convolution: TensorFlow's own, but for rounding, and nothing of it in what is saved."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st


def setup_module() -> None:
    global keras, use_fast_kernels, tf
    import keras
    import tensorflow as tf

    from pipeline.models.cpu_kernels import use_fast_kernels


_SIDES = st.integers(1, 7)


def is_quick(layer: "keras.layers.Layer") -> bool:
    return "convolution_op" in vars(layer)


def gradients(model: "keras.Model", images: np.ndarray) -> list[np.ndarray]:
    inputs = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = tf.reduce_sum(model(inputs) ** 2)
    return [gradient.numpy() for gradient in tape.gradient(loss, [inputs, *model.trainable_variables])]


@settings(deadline=None, max_examples=6)
@given(
    kernel=st.tuples(*[st.sampled_from([1, 3, 5])] * 2),
    sides=st.tuples(_SIDES, _SIDES),
    channels=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    use_bias=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_the_gradients_are_tensorflows_for_any_odd_kernel(kernel, sides, channels, use_bias, seed):
    keras.utils.set_random_seed(seed)
    layer = keras.layers.Conv2D(channels[1], kernel, padding="same", use_bias=use_bias)
    plain = keras.Sequential([keras.Input((*sides, channels[0])), layer])
    quick = keras.models.clone_model(plain)
    quick.set_weights(plain.get_weights())
    use_fast_kernels(quick)
    assert is_quick(quick.layers[0])
    images = np.random.default_rng(seed).normal(size=(2, *sides, channels[0])).astype(np.float32)
    np.testing.assert_array_equal(plain(images), quick(images))
    for expected, found in zip(gradients(plain, images), gradients(quick, images), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@settings(deadline=None, max_examples=6)
@given(
    kernel=st.tuples(*[st.sampled_from([1, 3, 5])] * 2),
    sides=st.tuples(*[st.integers(1, 4)] * 2),
    channels=st.tuples(*[st.sampled_from([64, 96, 128])] * 2),
    seed=st.integers(0, 2**16),
)
def test_the_gradients_in_bfloat16_are_those_of_float32_but_for_rounding(kernel, sides, channels, seed):
    keras.utils.set_random_seed(seed)
    how = {"filters": channels[1], "kernel_size": kernel, "padding": "same"}
    exact = keras.Sequential([keras.Input((*sides, channels[0])), keras.layers.Conv2D(**how)])
    quick = keras.Sequential([keras.Input((*sides, channels[0])), keras.layers.Conv2D(**how, dtype="mixed_bfloat16")])
    # Numbers that bfloat16 has.
    exact.set_weights([tf.cast(tf.cast(weight, "bfloat16"), "float32") for weight in exact.get_weights()])
    quick.set_weights(exact.get_weights())
    use_fast_kernels(quick)
    assert is_quick(quick.layers[0])
    images = np.random.default_rng(seed).integers(-8, 9, size=(3, *sides, channels[0])).astype(np.float32)
    for expected, found in zip(gradients(exact, images), gradients(quick, images), strict=True):
        # A bias's is Keras's own sum of 48 numbers in bfloat16, each rounding of which is up to 1 in 256.
        np.testing.assert_allclose(found.astype(np.float32), expected, rtol=0, atol=np.abs(expected).max() / 20)


@pytest.mark.parametrize(
    ("sides", "channels", "is_product"),
    [
        ((7, 7), (256, 256), True),
        ((7, 7), (224, 224), True),
        ((7, 7), (256, 223), False),
        ((3, 3), (128, 128), True),
        # Some of its places lie on no pixel.
        ((1, 4), (4, 4), True),
        ((3, 7), (128, 256), False),
        ((15, 15), (64, 256), False),
        ((None, None), (256, 256), False),
    ],
)
def test_a_small_images_kernel_has_its_gradient_by_products(sides, channels, is_product):
    model = keras.Sequential(
        [
            keras.Input((*sides, channels[0])),
            keras.layers.Conv2D(channels[1], 3, padding="same", dtype="mixed_bfloat16"),
        ]
    )
    use_fast_kernels(model)

    @tf.function
    def gradient(images):
        with tf.GradientTape() as tape:
            found = model(images)
        return tape.gradient(found, model.trainable_variables)

    graph = gradient.get_concrete_function(tf.TensorSpec((None, *sides, channels[0]))).graph
    kinds = [operation.type for operation in graph.get_operations()]
    assert (kinds.count("MatMul"), kinds.count("Conv2DBackpropFilter")) == ((9, 0) if is_product else (0, 1))
