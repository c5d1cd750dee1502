"""Whitening: filtered patches have the mean 0, the variance 1 and no correlation, the same on every machine."""

import numpy as np
import pytest


def setup_module() -> None:
    global airbench_convnet, whitening_filters
    from pipeline.models import airbench_convnet
    from pipeline.models.airbench_convnet import whitening_filters


SCALE, OFFSET = 1 / 64, -2


def smooth_images(rng, count, channels):
    """As photographs: each pixel much like its neighbors."""
    steps = rng.normal(size=(count, 20, 18, channels)).cumsum(axis=1).cumsum(axis=2)
    return np.clip(128 + 4 * steps, 0, 255).astype(np.uint8)


def filtered(images, kernel, bias):
    side, inputs = kernel.shape[0], images.astype(np.float64) * SCALE + OFFSET
    windows = np.lib.stride_tricks.sliding_window_view(inputs, (side, side), axis=(1, 2))
    return np.einsum("nyxcij,ijcf->nyxf", windows, kernel.astype(np.float64)) + bias


@pytest.mark.parametrize(("side", "channels"), [(2, 3), (2, 1), (3, 3), (1, 4)])
def test_filtered_patches_are_white(rng, side, channels):
    images = smooth_images(rng, 40, channels)
    kernel, bias = whitening_filters(images, side, scale=SCALE, offset=OFFSET)
    size = side * side * channels
    assert (kernel.shape, kernel.dtype) == ((side, side, channels, 2 * size), np.float32)
    assert (bias.shape, bias.dtype) == ((2 * size,), np.float32)
    found = filtered(images, kernel, bias)[..., :size].reshape(-1, size)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-4)
    covariance = np.cov(found.T).reshape(size, size)
    np.testing.assert_allclose(covariance - np.diag(covariance.diagonal()), 0, atol=1e-3)
    # Of directions in which patches differ less than what is added to their variance they stay smaller.
    assert (np.diff(covariance.diagonal()) < 1e-3).all()
    assert covariance[0, 0] == pytest.approx(1, abs=0.01)


def test_the_second_half_are_the_negatives_of_the_first(rng):
    kernel, bias = whitening_filters(smooth_images(rng, 10, 3), 2, scale=SCALE, offset=OFFSET)
    np.testing.assert_array_equal(kernel[..., 12:], -kernel[..., :12])
    np.testing.assert_array_equal(bias[12:], -bias[:12])
    greatest = np.abs(kernel[..., :12].reshape(12, 12)).argmax(axis=0)
    assert (kernel[..., :12].reshape(12, 12)[greatest, np.arange(12)] > 0).all()


def test_the_order_of_images_and_how_many_are_counted_at_a_time_change_no_bit(rng, monkeypatch):
    images = smooth_images(rng, 50, 3)
    expected = whitening_filters(images, 2, scale=SCALE, offset=OFFSET)
    monkeypatch.setattr(airbench_convnet, "_PIXELS_PER_CHUNK", 7 * 20 * 18)
    for array, other in zip(
        expected, whitening_filters(images[rng.permutation(50)], 2, scale=SCALE, offset=OFFSET), strict=True
    ):
        np.testing.assert_array_equal(array, other)


def test_images_of_one_color_have_filters_too():
    kernel, bias = whitening_filters(np.full((4, 8, 8, 3), 7, np.uint8), 2, scale=SCALE, offset=OFFSET)
    assert np.isfinite(kernel).all()
    np.testing.assert_allclose(filtered(np.full((1, 8, 8, 3), 7, np.uint8), kernel, bias), 0, atol=1e-4)


def test_as_much_memory_is_taken_for_few_large_images_as_for_many_small_ones(monkeypatch):
    seen = []
    plain = airbench_convnet._patches

    monkeypatch.setattr(
        airbench_convnet, "_patches", lambda images, side: seen.append(images.size) or plain(images, side)
    )
    for shape in ((1_600, 32, 32, 3), (100, 128, 128, 3), (2, 1_000, 1_000, 3)):
        whitening_filters(np.zeros(shape, np.uint8), 2, scale=SCALE, offset=OFFSET)
    assert max(seen) <= max(800 * 32 * 32, 1_000 * 1_000) * 3
    assert len(seen) == 2 + 2 + 2
