import numpy as np
import pytest

from pipeline.config import MODELS, TEXT_MODELS


def setup_module() -> None:
    global build_model, keras, kind_of_outputs, recipes
    import keras

    from pipeline.networks import build_model, kind_of_outputs, recipes


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


@pytest.mark.parametrize("name", sorted(set(MODELS) - set(TEXT_MODELS)))
@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (8, 8, 3), (96, 64, 4)])
def test_uint8_images_become_what_the_network_is_said_to_give(name, shape):
    manifest = {"image": {"shape": shape}, "label_names": list("abcdefg")}
    model = build_model(name, shape, 7)
    outputs = model(np.full((2, *shape), 255, np.uint8)).numpy()
    assert outputs.dtype == np.float32
    assert outputs.shape == (2, 7)
    are_probabilities = (outputs >= 0).all() and np.allclose(outputs.sum(axis=1), 1, rtol=1e-5)
    assert kind_of_outputs(manifest, name, "float32") == ("probabilities" if are_probabilities else "logits")


def test_images_too_small_are_refused():
    with pytest.raises(ValueError, match="at least 8 pixels"):
        build_model("baseline_cnn", (4, 32, 3), 10)


def test_the_small_convnet_has_as_many_weights_whatever_the_size_of_the_images():
    models = [build_model("small_convnet", (side, side, 3), 5) for side in (96, 192)]
    assert models[0].count_params() == models[1].count_params() < 1_000_000
    # An average over all places: none of its layers holds weights for a place.
    assert all(model.get_layer("average").output.shape[1:] == (192,) for model in models)


@pytest.mark.parametrize(("name", "side"), [("compact_convnet", 28), ("small_convnet", 96)])
def test_the_convnets_of_ours_tell_stripes_by_their_direction(name, side):
    """What no colour and no single pixel tells, in a few steps."""
    keras.utils.set_random_seed(0)
    rng, labels = np.random.default_rng(0), np.arange(32) % 2
    stripes = np.where(np.arange(side) // 4 % 2, 200, 50)
    images = np.stack([np.broadcast_to(stripes[:, None] if label else stripes, (side, side)) for label in labels])
    images = (images[..., None] + rng.integers(-30, 30, (32, side, side, 3))).astype(np.uint8)
    model = build_model(name, (side, side, 3), 2)
    optimizer = recipes.make_optimizer(
        recipes.RECIPES["onecycle"], total_steps=30, global_batch_size=16, scale_learning_rate="none"
    )
    model.compile(optimizer, recipes.make_loss(recipes.RECIPES["onecycle"]), metrics=["accuracy"])
    model.fit(images, labels, batch_size=16, epochs=15, verbose=0)
    assert model.evaluate(images, labels, verbose=0)[1] == 1
