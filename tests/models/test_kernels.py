"""The contract of every faster CPU kernel: it computes as Keras does but for rounding, and no file knows of it."""

import json

import numpy as np
import pytest


def setup_module() -> None:
    global keras, cpu_kernels, use_fast_kernels, tf
    import keras
    import tensorflow as tf

    from pipeline.models import cpu_kernels
    from pipeline.models.cpu_kernels import use_fast_kernels


LAYERS = {
    "activation": ("Activation", {"activation": "gelu"}),
    "convolution": ("Conv2D", {"filters": 4, "kernel_size": 3, "padding": "same"}),
    "normalization": ("BatchNormalization", {}),
    "pooling": ("MaxPooling2D", {"pool_size": 2}),
}


def is_quick(layer) -> bool:
    return bool({"call", "convolution_op"} & vars(layer).keys())


def trained(model, images) -> list[np.ndarray]:
    """Outputs in training, gradients of inputs and weights, and the weights afterward."""
    inputs = tf.constant(images)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = model(inputs, training=True)
        # The gradient of a plain sum is nothing behind a normalization.
        loss = tf.reduce_sum(tf.sin(tf.range(tf.size(outputs), dtype=tf.float32)) * tf.reshape(outputs, [-1]))
    gradients = tape.gradient(loss, [inputs, *model.trainable_variables])
    return [outputs.numpy(), *(gradient.numpy() for gradient in gradients), *model.get_weights()]


def check_kernel(kind, settings, input_shape, folder) -> None:
    """Compare a layer, alone and in a model in a model, with the same layer of Keras."""
    keras.utils.set_random_seed(0)
    layers = [getattr(keras.layers, kind)(**settings, name=name) for name in ("layer", "inner_layer")]
    inner = keras.Sequential([keras.Input(layers[0].compute_output_shape((None, *input_shape))[1:]), layers[1]])
    plain = keras.Sequential([keras.Input(input_shape), layers[0], inner])
    quick = keras.models.clone_model(plain)
    quick.set_weights(plain.get_weights())
    use_fast_kernels(quick)
    assert [is_quick(quick.layers[0]), is_quick(quick.layers[1].layers[0])] == [True, True]
    images = np.random.default_rng(0).normal(size=(4, *input_shape)).astype(np.float32)
    for expected, found in zip(trained(plain, images), trained(quick, images), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    quick.save(folder / "quick.keras")
    loaded = keras.models.load_model(folder / "quick.keras", safe_mode=True)
    assert not is_quick(loaded.layers[0])
    assert not is_quick(keras.models.clone_model(quick).layers[0])
    assert "pipeline" not in json.dumps(loaded.get_config())


@pytest.mark.parametrize("name", LAYERS)
def test_a_kernel_meets_the_contract(name, tmp_path, monkeypatch):
    # With oneDNN, Keras's own pooling is the faster one.
    monkeypatch.setattr(cpu_kernels, "_has_onednn", lambda: False)
    check_kernel(*LAYERS[name], (8, 8, 3), tmp_path)


def approximate_gelu(x):
    return keras.activations.gelu(x, approximate=True)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("Activation", {"activation": "relu"}),
        ("Activation", {"activation": "silu"}),
        ("Activation", {"activation": approximate_gelu}),
        ("Activation", {"activation": "gelu", "dtype": "float64"}),
        *(
            ("Conv2D", {"filters": 4, "kernel_size": 3, "padding": "same"} | other)
            for other in (
                {"strides": 2},
                {"dilation_rate": 2},
                {"groups": 2},
                {"padding": "valid"},
                {"kernel_size": 2},
                {"dtype": "float16"},
            )
        ),
        ("MaxPooling2D", {"pool_size": 3, "strides": 2, "padding": "same"}),
        ("MaxPooling2D", {"pool_size": 2, "strides": 1, "padding": "same"}),
        ("AveragePooling2D", {"pool_size": 2}),
    ],
)
def test_other_layers_are_left_alone(kind, settings, monkeypatch):
    monkeypatch.setattr(cpu_kernels, "_has_onednn", lambda: False)
    layer = getattr(keras.layers, kind)(**settings)
    use_fast_kernels(keras.Sequential([keras.Input((8, 8, 4)), layer]))
    assert not is_quick(layer)


def test_with_one_dnn_poolings_are_left_alone(monkeypatch):
    monkeypatch.setattr(cpu_kernels, "_has_onednn", lambda: True)
    layer = keras.layers.MaxPooling2D(2)
    use_fast_kernels(keras.Sequential([keras.Input((8, 8, 4)), layer]))
    assert not is_quick(layer)
