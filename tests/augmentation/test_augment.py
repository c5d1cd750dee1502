"""Operations: what each makes of an image, and that it makes the same of it in any batch."""

import functools

import numpy as np
import pytest

from pipeline.errors import SettingsError
from pipeline.settings.training import OPERATIONS


def setup_module() -> None:
    global _MIXUP, _PIXELS, _WINDOWS, Augmentation, GRAY, beta_quantiles, tf
    import tensorflow as tf

    from pipeline.augmentation import _MIXUP, _PIXELS, _WINDOWS, GRAY, Augmentation, beta_quantiles


SHAPE = (12, 16, 3)
ALL = "flip, crop:3, translate:0.2, random_resized_crop, color:0.3, cutout:5"
EVERY = [*ALL.split(", "), "alternating_flip"]
SEVERAL = [ALL, "alternating_flip, crop:2"]


@pytest.fixture(scope="module")
def images():
    return tf.constant(np.random.default_rng(0).integers(0, 256, (40, *SHAPE), dtype=np.uint8))


@functools.cache
def augmentation(setting, seed, image_shape):
    """An augmentation that traces each operation once for all tests."""
    return Augmentation(setting, seed=seed, image_shape=image_shape)


def augmented(images, setting, places=None, *, seed=0, epoch=0):
    places = np.arange(len(images)) if places is None else places
    found = augmentation(setting, seed, tuple(images.shape[1:]))
    return found.images(images, tf.constant(places), epoch).numpy()


def test_the_operations_of_the_setting_are_the_implemented_ones():
    assert set(OPERATIONS) == {*_WINDOWS, *_PIXELS, _MIXUP}


@pytest.mark.parametrize("setting", SEVERAL)
def test_an_image_becomes_the_same_in_any_batch(images, setting):
    whole = augmented(images, setting)
    order = np.random.default_rng(1).permutation(len(images))
    for part in order[:, None]:
        np.testing.assert_array_equal(augmented(tf.gather(images, part), setting, part), whole[part])


@pytest.mark.parametrize("setting", [*EVERY, *SEVERAL])
def test_an_image_becomes_another_in_another_epoch(images, setting):
    first, second = (augmented(images, setting, epoch=epoch) for epoch in (0, 1))
    assert (first.dtype, first.shape) == (np.uint8, images.shape)
    assert not np.array_equal(first, second)


def test_an_image_becomes_another_with_another_seed(images):
    first, second = (augmented(images, "flip", seed=seed) for seed in (0, 1))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("setting", SEVERAL)
def test_shapes_are_static_and_no_image_is_taken_alone(setting):
    found = augmentation(setting, 0, SHAPE)
    specs = tf.TensorSpec([None, *SHAPE], tf.uint8), tf.TensorSpec([None], tf.int64)
    graph = tf.function(lambda images, places: found.images(images, places, 0)).get_concrete_function(*specs)
    assert graph.outputs[0].shape.as_list() == [None, *SHAPE]
    definition = graph.graph.as_graph_def()
    types = {node.op for inner in definition.library.function for node in inner.node_def}
    assert "BitwiseXor" in types
    assert not types & {"While", "StatelessWhile", "MapDefun", "PyFunc", "EagerPyFunc"}


def test_about_half_are_mirrored_and_the_rest_as_they_were(images):
    before, after = images.numpy(), augmented(images, "flip")
    mirrored = [np.array_equal(one, other[:, ::-1]) for one, other in zip(after, before, strict=True)]
    same = [np.array_equal(one, other) for one, other in zip(after, before, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True))
    assert 8 < sum(mirrored) < 32


def test_of_two_epochs_each_image_is_mirrored_in_one(images):
    before = images.numpy()
    epochs = [augmented(images, "alternating_flip", epoch=epoch) for epoch in range(4)]
    mirrored = [np.array_equal(one, other[:, ::-1]) for one, other in zip(epochs[0], before, strict=True)]
    assert 8 < sum(mirrored) < 32
    np.testing.assert_array_equal(epochs[1], epochs[0][:, :, ::-1])
    np.testing.assert_array_equal(epochs[2], epochs[0])
    np.testing.assert_array_equal(epochs[3], epochs[1])
    other_seed = augmented(images, "alternating_flip", seed=1)
    assert not np.array_equal(other_seed, epochs[0])
    assert not np.array_equal(other_seed, epochs[1])


def test_a_crop_is_a_window_of_the_reflected_image(images):
    before, after = images.numpy(), augmented(images, "crop:3")
    seen = set()
    for one, other in zip(after, before, strict=True):
        padded = np.pad(one_padded := other, ((3, 3), (3, 3), (0, 0)), mode="reflect")
        found = [(y, x) for y in range(7) for x in range(7) if np.array_equal(padded[y : y + 12, x : x + 16], one)]
        assert len(found) == 1, one_padded.shape
        seen.add(found[0])
    assert len(seen) > 15


def test_the_border_of_a_translation_is_gray(images):
    before, after = images.numpy(), augmented(images, "translate:0.25")
    for one, other in zip(after, before, strict=True):
        padded = np.pad(other, ((3, 3), (4, 4), (0, 0)), constant_values=GRAY)
        assert any(np.array_equal(padded[y : y + 12, x : x + 16], one) for y in range(7) for x in range(9))


def test_cutout_is_one_gray_square(images):
    before, after = images.numpy(), augmented(images, "cutout:5")
    changed = (before != after).any(axis=3)
    assert (after[changed] == GRAY).all()
    heights, widths = changed.any(axis=2).sum(axis=1), changed.any(axis=1).sum(axis=1)
    assert 3 <= heights.max() <= 5 >= widths.max() >= 3
    assert heights.min() >= 2


def test_a_resized_crop_is_a_part_brought_back_to_size():
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (1, 48, 64, 1))
    images = tf.constant(np.repeat(ramp, 50, axis=0))
    found = augmented(images, "random_resized_crop:0.35").astype(int)
    np.testing.assert_array_equal(found[:, :1], found[:, 47:])
    spans = found[:, 0, -1, 0] - found[:, 0, 0, 0]
    assert (np.diff(found[:, 0, :, 0]) >= 0).all()
    assert spans.max() <= 252
    assert 100 < spans.min() < 200
    np.testing.assert_array_equal(augmented(images[:1], "random_resized_crop:1", epoch=3).shape, images[:1].shape)


@pytest.mark.parametrize("side", [12, 97, 192])
def test_a_resized_crop_never_leaves_the_image(side):
    white = tf.fill([500, side, side, 1], tf.constant(255, tf.uint8))
    assert augmented(white, "random_resized_crop").min() == 255


def test_colors_change_together_and_opacity_stays(images):
    after = augmented(images, "color:0.3")
    ratio = after.mean(axis=(1, 2, 3)) / images.numpy().mean(axis=(1, 2, 3))
    assert 0.6 < ratio.min() < 0.9
    assert 1.1 < ratio.max() < 1.4
    alone = augmented(images[..., :1], "color:0.3")
    assert alone.shape == (40, 12, 16, 1)
    opaque = tf.concat([images, images[..., :1]], axis=3)
    np.testing.assert_array_equal(augmented(opaque, "color:0.3")[..., 3], opaque.numpy()[..., 3])


@pytest.mark.parametrize("setting", ["crop:12", "cutout:12"])
def test_a_window_as_large_as_the_image_is_refused(setting):
    with pytest.raises(SettingsError, match=r"\[Train\] augment: expected less than the images' 12 pixels after"):
        Augmentation(setting, seed=0, image_shape=SHAPE)


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_weights_of_mixup_follow_beta(alpha, rng):
    drawn = rng.beta(alpha, alpha, 200_000)
    places = np.linspace(0, 1, 4_097)
    for share in (0.1, 0.3, 0.5, 0.8):
        found = np.interp(share, places, beta_quantiles(alpha))
        assert found == pytest.approx(np.quantile(drawn, share), abs=0.02)
