"""The picture of augmented examples that a run leaves."""

import numpy as np
import pytest

from pipeline.artifacts.manifest import read_manifest
from pipeline.problems.problem import AUGMENTED_NAME, open_split


def setup_module() -> None:
    global Augmentation, InputStream, Split, picture_augmented, tf
    import tensorflow as tf

    from pipeline.augmentation import Augmentation
    from pipeline.problems.image_classification.evaluation import picture_augmented
    from pipeline.streams.tf_data import InputStream, Split


@pytest.mark.parametrize(
    ("setting", "in_memory"),
    [("flip, crop:4", False), ("flip, mixup:1", True)],
    ids=["from_disk", "mixup_in_memory"],
)
def test_each_row_is_an_example_as_stored_and_as_the_epochs_see_it(small_records, tmp_path, in_memory, setting):
    split = open_split(small_records, read_manifest(small_records), "train")
    augmentation = Augmentation(setting, seed=3, image_shape=split.content_shape)
    train = InputStream(split, global_batch_size=32, seed=3, in_memory=in_memory, augmentation=augmentation)
    facts = picture_augmented(train, tmp_path)
    assert [one["epoch"] for one in facts] == [*range(8)] * 4
    assert len({one["label"] for one in facts}) == 4
    sheet = tf.io.decode_png((tmp_path / AUGMENTED_NAME).read_bytes()).numpy()
    assert sheet.shape == (4 * 32, 8 * 32, 3)
    images, labels = next(train.evaluation().as_numpy_iterator())
    places = [one["index"] for one in facts[::8]]
    assert [labels[place] for place in places] == [one["label"] for one in facts[::8]]
    np.testing.assert_array_equal(sheet[:, :32], np.concatenate(images[places]))
    if not augmentation.mixes:
        order = [int(place) for place in _places_of_first_batch(train, epoch=4)]
        seen, _ = next(train.training(4).as_numpy_iterator())
        whole = augmentation.images(tf.constant(images), tf.range(32), 4).numpy()
        np.testing.assert_array_equal(sheet[:32, 5 * 32 : 6 * 32], whole[places[0]])
        for image, place in zip(seen, order, strict=True):
            if place in places:
                row = places.index(place) * 32
                np.testing.assert_array_equal(sheet[row : row + 32, 5 * 32 : 6 * 32], image)


def _places_of_first_batch(train, epoch):
    """Where the examples of an epoch's first batch stand in the stored order."""
    bare = InputStream(train.split, global_batch_size=32, seed=3, in_memory=train.in_memory)
    stored = [image.tobytes() for images, _ in bare.evaluation().as_numpy_iterator() for image in images]
    images, _ = next(bare.training(epoch).as_numpy_iterator())
    return [stored.index(image.tobytes()) for image in images]


def test_without_augmentation_there_is_no_picture(small_records, tmp_path):
    split = open_split(small_records, read_manifest(small_records), "train")
    assert picture_augmented(InputStream(split, global_batch_size=32, seed=3), tmp_path) == []
    assert not list(tmp_path.iterdir())
