import numpy as np
import pytest

from pipeline.networks import build_model


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


@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (8, 8, 3)])
def test_uint8_images_become_probabilities(shape):
    model = build_model("baseline_cnn", shape, 7)
    probabilities = model(np.full((2, *shape), 255, np.uint8)).numpy()
    assert probabilities.dtype == np.float32
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)


def test_images_too_small_are_refused():
    with pytest.raises(ValueError, match="at least 8 pixels"):
        build_model("baseline_cnn", (4, 32, 3), 10)
