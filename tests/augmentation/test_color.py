"""The arithmetic of color: brightness, contrast and saturation of an image whose channels differ."""

import numpy as np
import pytest


def setup_module() -> None:
    global augmentation, tf
    import tensorflow as tf

    from pipeline import augmentation


class Factors:
    """Draws that are given: brightness, contrast and saturation, the same for each image."""

    def __init__(self, *factors: float) -> None:
        self._factors = factors

    def uniform(self, number: int, low: float, high: float) -> "tf.Tensor":
        return tf.constant([self._factors[number]], tf.float32)


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ((1.0, 1.0, 1.0), lambda color, luma, mean: color),
        ((0.7, 1.0, 1.0), lambda color, luma, mean: 0.7 * color),
        ((1.0, 1.0, 0.7), lambda color, luma, mean: 0.7 * color + 0.3 * luma),
        ((1.0, 0.7, 1.0), lambda color, luma, mean: 0.7 * color + 0.3 * mean),
    ],
    ids=["unchanged", "brightness", "saturation", "contrast"],
)
def test_red_green_and_blue_have_the_weights_of_itu_r_bt_601(factors, expected):
    image = np.array([[[200, 0, 0], [0, 200, 0], [0, 0, 200]]], np.uint8)
    luma = image @ np.array([0.299, 0.587, 0.114])
    result = augmentation.color(tf.constant(image[None]), Factors(*factors), 0.3).numpy()[0]
    np.testing.assert_allclose(result, expected(image.astype(float), luma[..., None], luma.mean()), atol=0.51)
