"""The convnet of airbench94: as published, adapted to its data, of Keras's own layers."""

import numpy as np
import pytest


def setup_module() -> None:
    global build_model, find_adapter, keras
    import keras

    from pipeline.models.build import build_model, find_adapter


NAMES = ("airbench_convnet", "airbench_convnet_small", "airbench_convnet_large")
SHAPE = (32, 32, 3)


@pytest.fixture
def images(rng):
    steps = rng.normal(size=(64, *SHAPE)).cumsum(axis=1).cumsum(axis=2)
    return np.clip(128 + 4 * steps, 0, 255).astype(np.uint8)


def test_it_has_the_weights_and_the_layers_of_what_was_published():
    model = build_model("airbench_convnet", SHAPE, 10)
    # 2·2·3·24 frozen and 24, 3·3·(24·64 + 64·64 + 64·256 + 3·256·256), three of each normalized filter, 256·10.
    kernels = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256)
    assert model.count_params() == 288 + 24 + kernels + 3 * 2 * (64 + 256 + 256) + 2_560
    sides = [model.get_layer(name).output.shape[1] for name in ("whiten", "pool_1", "pool_2", "pool_3")]
    assert sides == [31, 15, 7, 3]
    small = build_model("airbench_convnet_small", SHAPE, 10)
    assert [layer.filters for layer in small.layers if layer.name.startswith("conv")] == [32, 32, *[128] * 4]


@pytest.mark.parametrize(("name", "millions"), [*zip(NAMES, (118.1, 33.1, 452.0), strict=True)])
def test_the_documented_number_of_multiplications_per_image_is_true(name, millions):
    layers = [one for one in build_model(name, SHAPE, 10).layers if hasattr(one, "kernel")]
    # A kernel is applied at each place of what its layer puts out.
    places = [np.prod(one.output.shape[1:-1]) for one in layers]
    found = sum(np.prod(one.kernel.shape) * place for one, place in zip(layers, places, strict=True))
    assert found / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("name", ["airbench_convnet_small"])
def test_its_convolutions_begin_by_handing_on_what_they_are_given(name, rng):
    model = build_model(name, SHAPE, 10)
    for layer in (one for one in model.layers if one.name.startswith("conv_")):
        inputs = rng.normal(size=(2, *layer.input.shape[1:])).astype(np.float32)
        channels = min(inputs.shape[-1], layer.filters)
        np.testing.assert_allclose(layer(inputs)[..., :channels], inputs[..., :channels], atol=1e-6)


@pytest.mark.parametrize("name", ["airbench_convnet_small"])
def test_it_whitens_patches_by_filters_that_are_not_trained(name, images):
    model = build_model(name, SHAPE, 4)
    find_adapter(name)(model, images)
    layer = model.get_layer("whiten")
    before = [keras.ops.convert_to_numpy(one).copy() for one in (layer.kernel, layer.bias)]
    plain = keras.layers.Conv2D.from_config({**layer.get_config(), "activation": "linear"})
    plain.build((None, *SHAPE))
    plain.set_weights(before)
    found = keras.ops.convert_to_numpy(plain(images / np.float32(64) - 2))[..., :12].reshape(-1, 12)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose(found.std(axis=0)[:3], 1, atol=0.01)
    assert not any(weight is one for weight in model.trainable_variables for one in (layer.kernel, layer.bias))


def test_a_network_that_takes_nothing_from_data_is_not_adapted():
    assert [name for name in (*NAMES, "baseline_cnn", "char_lstm") if find_adapter(name)] == [*NAMES]


def test_rescaled_pixels_are_exact_in_bfloat16():
    rescale = keras.layers.Rescaling(1 / 64, offset=-2, dtype="bfloat16")
    found = keras.ops.convert_to_numpy(keras.ops.cast(rescale(np.arange(256, dtype=np.uint8)[None]), "float32"))
    np.testing.assert_array_equal(found[0], np.arange(256) / 64 - 2)
