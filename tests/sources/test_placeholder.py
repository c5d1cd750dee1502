"""The placeholder's bytes depend on (split, index) alone, and its labels are in shapes, not in colors."""

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources import placeholder_images

PINNED_SHA256 = "7f20e9d6772ffcbc972f61d0e05fbf0b1161c4cd86e775ef6e6df0c9ee7c03af"
NUM_REFERENCE = 700


@pytest.fixture(scope="module")
def train() -> tuple[np.ndarray, np.ndarray]:
    return placeholder_images.draw_block("train", 0, 4_000)


@pytest.fixture(scope="module")
def test() -> tuple[np.ndarray, np.ndarray]:
    return placeholder_images.draw_block("test", 0, 1_000)


@settings(max_examples=10, deadline=None)
@given(cuts=st.lists(st.integers(0, NUM_REFERENCE), max_size=4))
def test_same_bytes_however_the_range_is_cut(train, cuts):
    edges = [0, *sorted(cuts), NUM_REFERENCE]
    blocks = [placeholder_images.draw_block("train", start, stop) for start, stop in pairwise(edges)]
    images, labels = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    np.testing.assert_array_equal(images, train[0][:NUM_REFERENCE])
    np.testing.assert_array_equal(labels, train[1][:NUM_REFERENCE])


def test_first_thousand_train_examples_have_the_pinned_bytes(train):
    images, labels = train[0][:1000], train[1][:1000]
    digest = hashlib.sha256(images.tobytes() + labels.astype("<i8").tobytes()).hexdigest()
    assert digest == PINNED_SHA256


def test_block_has_documented_shapes_and_dtypes():
    images, labels = placeholder_images.draw_block("test", 5, 12)
    assert (images.shape, images.dtype) == ((7, *placeholder_images.IMAGE_SHAPE), np.uint8)
    assert (labels.shape, labels.dtype) == ((7,), np.int64)


def test_empty_range_gives_an_empty_block():
    images, labels = placeholder_images.draw_block("train", 3, 3)
    assert images.shape == (0, *placeholder_images.IMAGE_SHAPE)
    assert labels.shape == (0,)


def test_range_may_go_beyond_the_splits_size():
    beyond = placeholder_images.NUM_EXAMPLES["train"] * 12
    images, labels = placeholder_images.draw_block("train", beyond - 3, beyond + 3)
    tail, _ = placeholder_images.draw_block("train", beyond, beyond + 3)
    np.testing.assert_array_equal(images[3:], tail)
    assert set(labels) <= set(range(10))


def test_splits_share_no_image(train, test):
    seen = {image.tobytes() for image in train[0]}
    assert len(seen) == len(train[0])
    assert not seen & {image.tobytes() for image in test[0]}


def test_splits_order_their_labels_differently(train, test):
    assert not np.array_equal(train[1][:100], test[1][:100])


@pytest.mark.parametrize(
    ("split", "start", "stop"),
    [("train", 0, 50_000), ("test", 0, 10_000), ("train", 37, 1_037)],
)
def test_labels_are_balanced_in_any_range(split, start, stop):
    # The labels alone: drawing 60,000 images to count their labels would be waste.
    labels = placeholder_images.labels_of(split, start, stop)
    counts = np.bincount(labels, minlength=len(placeholder_images.LABEL_NAMES))
    assert len(counts) == 10
    assert np.ptp(counts) <= 2


def test_labels_do_not_simply_count(train):
    agreement = np.mean(train[1] == np.arange(len(train[1])) % 10)
    assert 0.05 < agreement < 0.15


def test_raw_pixels_are_a_weak_clue(train, test):
    means = np.stack([_pixels(train[0])[train[1] == label].mean(0) for label in range(10)])
    distances = (means**2).sum(1) - 2 * _pixels(test[0]) @ means.T
    assert 0.10 < np.mean(distances.argmin(1) == test[1]) < 0.35


def test_mean_color_is_no_clue(train, test):
    assert _ridge_accuracy(_mean_color, train, test) < 0.14


def test_edges_are_a_strong_clue(train, test):
    # Measured 0.75: what a network can learn here is in the shapes.
    assert _ridge_accuracy(_edge_histograms, train, test) > 0.60


def _pixels(images):
    return images.reshape(len(images), -1).astype(np.float64)


def _mean_color(images):
    mean = images.mean((1, 2))
    return np.concatenate([mean, mean**2, mean * np.roll(mean, 1, axis=1)], axis=1)


def _edge_histograms(images, directions=8, side=28, cells=4):
    """Gradient strength by direction in a 4x4 grid of cells: the classic cheap description of a shape."""
    gray = images.mean(3, dtype=np.float32)
    # Blur first: the noise has edges of its own.
    gray = gray[:, :-1, :-1] + gray[:, 1:, :-1] + gray[:, :-1, 1:] + gray[:, 1:, 1:]
    across, down = gray[:, 1:-1, 2:] - gray[:, 1:-1, :-2], gray[:, 2:, 1:-1] - gray[:, :-2, 1:-1]
    direction = ((np.arctan2(down, across) / (2 * np.pi) + 0.5) * directions).astype(int) % directions
    strength = np.hypot(across, down)[:, None] * (direction[:, None] == np.arange(directions)[:, None, None])
    grid = (len(images), directions, cells, side // cells, cells, side // cells)
    histograms = strength[:, :, :side, :side].reshape(grid).sum((3, 5)).reshape(len(images), -1)
    return np.sqrt(histograms / (histograms.sum(1, keepdims=True) + 1e-6))


def _ridge_accuracy(describe, train, test):
    known, asked = (describe(images).astype(np.float64) for images, _ in (train, test))
    mean, deviation = known.mean(0), known.std(0) + 1e-6
    known, asked = (known - mean) / deviation, (asked - mean) / deviation
    gram = known.T @ known + np.eye(known.shape[1])
    weights = np.linalg.solve(gram, known.T @ np.eye(10)[train[1]])
    return np.mean((asked @ weights).argmax(1) == test[1])
