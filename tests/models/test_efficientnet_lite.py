"""EfficientNet-Lite0 has the layers and the outputs of the model that its weights were trained with."""

import numpy as np
import pytest

from pipeline.runs.initial_weights import find_initial_weights
from pipeline.settings.training import MODELS, PRETRAINED

MODEL = "efficientnet_lite0"


def setup_module() -> None:
    global assign, build_model, imagenet_weights, keras, named_variables
    import keras

    from pipeline.models.build import build_model
    from pipeline.models.efficientnet_lite import imagenet_weights
    from pipeline.models.model import assign, named_variables


@pytest.fixture(scope="module")
def weights():
    return imagenet_weights(find_initial_weights("", None, MODEL).file)


def test_every_layer_takes_its_weights_of_imagenet_except_the_last(weights):
    model = build_model(MODEL, (32, 32, 3), 5)
    shapes = {name: tuple(variable.shape) for name, variable in named_variables(model).items()}
    assert {name: array.shape for name, array in weights.items()} == {
        **{name: shape for name, shape in shapes.items() if not name.startswith("logits/")},
        "imagenet/kernel": (1280, 1000),
        "imagenet/bias": (1000,),
    }


def test_the_outputs_are_those_of_the_published_model(weights):
    """The fixed outputs belong to a model that finds a daisy on 56 of 64 photographs of daisies."""
    model = build_model(MODEL, (96, 80, 3), 1000)
    assign(named_variables(model), {name.replace("imagenet", "logits"): array for name, array in weights.items()})
    rows, columns, channels = np.ogrid[:96, :80, :3]
    image = (128 + 120 * np.sin(rows / 7 + channels) * np.cos(columns / 5 - channels)).astype(np.uint8)
    logits = keras.ops.convert_to_numpy(model(image[None], training=False))[0]
    best = np.argsort(-logits)[:3]
    assert best.tolist() == [904, 741, 828]
    np.testing.assert_allclose(logits[best], [12.460023, 8.778579, 8.690395], rtol=1e-4)


def test_images_with_one_channel_use_the_weights_of_all_three():
    gray, color = (build_model(MODEL, (16, 16, channels), 5) for channels in (1, 3))
    color.set_weights(gray.get_weights())
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 1), np.uint8)
    np.testing.assert_allclose(gray(images), color(np.repeat(images, 3, axis=-1)), rtol=1e-5)


def test_a_model_with_pretrained_weights_starts_with_them_unless_they_shall_be_random(tmp_path):
    assert {*PRETRAINED} == {MODEL, *MODELS.unlisted}
    assert find_initial_weights("", tmp_path, MODEL).digest[:12] == "579344248a93"
    assert find_initial_weights("random", tmp_path, MODEL) is None
    assert find_initial_weights("", tmp_path, "baseline_cnn") is None
