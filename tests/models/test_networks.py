import json

import numpy as np
import pytest

from pipeline.errors import SettingsError
from pipeline.problems.next_token import NextToken
from pipeline.problems.text_classification import TextClassification
from pipeline.records.features import Task
from pipeline.settings.training import MODELS

FOR_TEXTS = (*NextToken.models, *TextClassification.models)


def setup_module() -> None:
    global build_model, build_for_task, has_depthwise_convolutions, keras, kind_of_outputs
    import keras

    from pipeline.models.build import build_for_task, build_model, has_depthwise_convolutions, kind_of_outputs


def test_baseline_cnn_is_the_published_network():
    model = build_model("baseline_cnn", (32, 32, 3), 10)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds == (
        # relu after the pooling gives what relu before it does.
        ["Rescaling"] + ["Conv2D", "MaxPooling2D", "ReLU"] * 3 + ["Dropout", "Flatten", "Dense", "Dropout", "Dense"]
    )
    convolutions = [layer for layer in model.layers if type(layer).__name__ == "Conv2D"]
    assert [(layer.filters, layer.kernel_size, layer.padding) for layer in convolutions] == [
        (filters, (2, 2), "same") for filters in (32, 64, 128)
    ]
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.3, 0.4]
    # 2·2·3·32+32, 2·2·32·64+64, 2·2·64·128+128, 2048·100+100, 100·10+10.
    assert model.count_params() == 416 + 8_256 + 32_896 + 204_900 + 1_010


@pytest.mark.parametrize(
    ("name", "shape", "labels", "weights"),
    [
        # 784·512+512, 512·10+10.
        ("mnist_dense", (28, 28, 1), 10, 401_920 + 5_130),
        # 2·2·1·64+64, 2·2·64·32+32, 7·7·32·256+256, 256·10+10.
        ("mnist_cnn", (28, 28, 1), 10, 320 + 8_224 + 401_664 + 2_570),
        # 4·(1+64+128), 5·5·1·64+64, 5·5·64·128+128, 5·5·128·256+256, 3·3·256·256+256, 256·10+10.
        ("fashion_cnn", (28, 28, 1), 10, 772 + 1_664 + 204_928 + 819_456 + 590_080 + 2_570),
        # As published.
        ("flowers_convnet", (192, 192, 3), 5, 293_233),
    ],
)
def test_the_tutorials_networks_have_the_weights_of_what_was_published(name, shape, labels, weights):
    assert build_model(name, shape, labels).count_params() == weights


def test_the_flowers_convnet_averages_over_144_places():
    assert build_model("flowers_convnet", (192, 192, 3), 5).get_layer("average").input.shape[1:] == (12, 12, 40)


def check_model(name, input_shape, num_outputs, folder):
    """The contract of every model of the project.

    It takes uint8 images or tokens, gives float32 probabilities or logits as it is said to, and its file consists of
    Keras layers alone and gives the same.
    """
    keras.utils.set_random_seed(0)
    model = build_model(name, input_shape, num_outputs)
    inputs = np.random.default_rng(0).integers(0, num_outputs, (2, *input_shape), dtype=np.uint8)
    outputs = model(inputs).numpy()
    assert outputs.dtype == np.float32
    assert outputs.shape == (2, *(input_shape if name in NextToken.models else ()), num_outputs)
    if name not in FOR_TEXTS:
        task = Task(input_shape, 256, (), num_outputs)
        are_probabilities = (outputs >= 0).all() and np.allclose(outputs.sum(axis=1), 1, rtol=1e-5)
        assert kind_of_outputs(task, name, "float32") == ("probabilities" if are_probabilities else "logits")
    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras", safe_mode=True)
    assert "pipeline" not in json.dumps(loaded.get_config())
    np.testing.assert_allclose(loaded(inputs), outputs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*MODELS, "keras.applications:ConvNeXtTiny"])
def test_depthwise_convolutions_are_found_in_the_model(name):
    """They are slower in bfloat16 on a CPU."""
    shape = (6,) if name in FOR_TEXTS else (32, 32, 3)
    task = Task(input_shape=shape, inputs=256, label_shape=(), num_labels=5)
    # A convolution in as many groups as channels is a depthwise one.
    assert has_depthwise_convolutions(name, task) == (name in ("efficientnet_lite0", "keras.applications:ConvNeXtTiny"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_meets_the_contract(name, tmp_path):
    check_model(name, (6,) if name in FOR_TEXTS else (16, 16, 3), 5, tmp_path)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in FOR_TEXTS])
def test_a_model_takes_images_of_any_shape_from_8_pixels(name):
    for shape in ((8, 8, 3), (28, 12, 1), (9, 16, 4)):
        assert build_model(name, shape, 7).outputs[0].shape == (None, 7)


def test_images_too_small_are_refused():
    before = keras.config.dtype_policy()
    with pytest.raises(SettingsError, match="at least 8 × 8 pixels"):
        build_for_task(Task((4, 32, 3), 256, (), 2), "baseline_cnn", "bfloat16")
    assert keras.config.dtype_policy() == before


def test_a_model_in_bfloat16_leaves_the_policy_of_the_process_alone():
    task, before = Task((28, 28, 1), 256, (), 2), keras.config.dtype_policy()
    assert build_for_task(task, "mnist_dense", "bfloat16").layers[-2].compute_dtype == "bfloat16"
    assert keras.config.dtype_policy() == before
    assert build_for_task(task, "mnist_dense", "float32").layers[-2].compute_dtype == "float32"


def test_the_small_convnet_has_as_many_weights_whatever_the_size_of_the_images():
    models = [build_model("small_convnet", (side, side, 3), 5) for side in (96, 192)]
    assert models[0].count_params() == models[1].count_params() < 1_000_000
    # An average over all places: none of its layers holds weights for a place.
    assert all(model.get_layer("average").output.shape[1:] == (192,) for model in models)


@pytest.mark.slow
def test_a_convnet_tells_stripes_by_their_direction():
    """No color and no single pixel tells them apart."""
    side = 16
    keras.utils.set_random_seed(0)
    rng, labels = np.random.default_rng(0), np.arange(32) % 2
    stripes = np.where(np.arange(side) // 4 % 2, 200, 50)
    images = np.stack([np.broadcast_to(stripes[:, None] if label else stripes, (side, side)) for label in labels])
    images = (images[..., None] + rng.integers(-30, 30, (32, side, side, 3))).astype(np.uint8)
    model = build_model("compact_convnet", (side, side, 3), 2)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(images, labels, batch_size=16, epochs=15, verbose=0)
    assert model.evaluate(images, labels, verbose=0)[1] == 1
