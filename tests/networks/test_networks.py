import keras
import numpy as np
import pytest

from pipeline.networks import NETWORKS, TEXT_NETWORKS, build_model, recipes


def test_baseline_cnn_is_the_published_network():
    model = build_model("baseline_cnn", (32, 32, 3), 10)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds == (
        ["Rescaling"] + ["Conv2D", "MaxPooling2D"] * 3 + ["Dropout", "Flatten", "Dense", "Dropout", "Dense"]
    )
    convolutions = [layer for layer in model.layers if type(layer).__name__ == "Conv2D"]
    assert [(layer.filters, layer.kernel_size, layer.padding) for layer in convolutions] == [
        (filters, (2, 2), "same") for filters in (32, 64, 128)
    ]
    assert [layer.rate for layer in model.layers if type(layer).__name__ == "Dropout"] == [0.3, 0.4]
    # 2·2·3·32+32, 2·2·32·64+64, 2·2·64·128+128, 2048·100+100, 100·10+10.
    assert model.count_params() == 416 + 8_256 + 32_896 + 204_900 + 1_010


@pytest.mark.parametrize("name", sorted(NETWORKS.keys() - TEXT_NETWORKS.keys()))
@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (8, 8, 3), (96, 64, 4)])
def test_uint8_images_become_probabilities(name, shape):
    model = build_model(name, shape, 7)
    probabilities = model(np.full((2, *shape), 255, np.uint8)).numpy()
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_images_too_small_are_refused():
    with pytest.raises(ValueError, match="at least 8 pixels"):
        build_model("baseline_cnn", (4, 32, 3), 10)


def test_the_small_convnet_has_as_many_weights_whatever_the_size_of_the_images():
    models = [build_model("small_convnet", (side, side, 3), 5) for side in (96, 192)]
    assert models[0].count_params() == models[1].count_params() < 1_000_000
    # An average over all places: none of its layers holds weights for a place.
    assert all(model.get_layer("average").output.shape[1:] == (192,) for model in models)


def test_the_small_convnet_tells_stripes_by_their_direction():
    """What no colour and no single pixel tells, in a few steps."""
    keras.utils.set_random_seed(0)
    rng, labels = np.random.default_rng(0), np.arange(32) % 2
    stripes = np.where(np.arange(96) // 4 % 2, 200, 50)
    images = np.stack([np.broadcast_to(stripes[:, None] if label else stripes, (96, 96)) for label in labels])
    images = (images[..., None] + rng.integers(-30, 30, (32, 96, 96, 3))).astype(np.uint8)
    model = build_model("small_convnet", (96, 96, 3), 2)
    optimizer = recipes.make_optimizer(
        recipes.RECIPES["onecycle"], total_steps=30, global_batch_size=16, scale_learning_rate="none"
    )
    model.compile(optimizer, recipes.make_loss(recipes.RECIPES["onecycle"]), metrics=["accuracy"])
    model.fit(images, labels, batch_size=16, epochs=15, verbose=0)
    assert model.evaluate(images, labels, verbose=0)[1] == 1
