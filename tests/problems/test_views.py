"""Views of test-time augmentation: an image mirrored and moved, and how much each counts."""

import numpy as np
import pytest

from pipeline.errors import SettingsError
from pipeline.problems.classification import VIEWS, View
from pipeline.problems.next_token import NextToken
from pipeline.settings.training import TEST_TIME_AUGMENTATION, TrainSettings


def test_the_views_are_those_of_the_setting():
    assert {name: len(views) for name, views in VIEWS.items()} == TEST_TIME_AUGMENTATION


@pytest.mark.parametrize("name", VIEWS)
def test_weights_add_up_to_one_and_each_view_has_its_mirror_image(name):
    views = VIEWS[name]
    assert sum(view.weight for view in views) == 1
    if name != "none":
        places = {(view.mirrored, view.down, view.right): view.weight for view in views}
        assert len(places) == len(views)
        assert all(places[not mirrored, down, right] == weight for (mirrored, down, right), weight in places.items())


@pytest.mark.parametrize("shape", [(3, 6, 8, 3), (2, 5, 5, 1)])
@pytest.mark.parametrize(("down", "right"), [(0, 0), (1, 1), (-1, -1), (2, -1)])
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_view_is_a_window_of_the_reflected_image(rng, shape, down, right, mirrored):
    images = rng.integers(0, 256, shape, dtype=np.uint8)
    padded = np.pad(images, ((0, 0), (2, 2), (2, 2), (0, 0)), mode="reflect")
    height, width = shape[1:3]
    expected = padded[:, 2 - down : 2 - down + height, 2 - right : 2 - right + width]
    expected = expected[:, :, ::-1] if mirrored else expected
    np.testing.assert_array_equal(View(1.0, mirrored, down, right).of(images), expected)


def test_a_single_row_moves_nowhere(rng):
    images = rng.integers(0, 256, (2, 1, 4, 1), dtype=np.uint8)
    np.testing.assert_array_equal(View(1.0, down=1).of(images), images)
    np.testing.assert_array_equal(View(1.0, down=-1).of(images), images)


def test_the_view_of_none_is_the_image(rng):
    images = rng.integers(0, 256, (2, 7, 5, 3), dtype=np.uint8)
    np.testing.assert_array_equal(VIEWS["none"][0].of(images), images)
    texts = rng.integers(0, 256, (2, 7), dtype=np.uint8)
    np.testing.assert_array_equal(VIEWS["none"][0].of(texts), texts)


def test_texts_have_no_views():
    with pytest.raises(SettingsError, match=r"\[Train\] test_time_augmentation: expected none for records of"):
        NextToken().check(TrainSettings(model="char_lstm", augment="", test_time_augmentation="flip"))
