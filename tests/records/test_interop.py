"""The records in the hands of TensorFlow Datasets' own tools; what else reads artifacts is tested beside its module."""

import pytest

from pipeline.sources import placeholder_images


def setup_module() -> None:
    global tfds
    import tensorflow_datasets as tfds


def test_tfds_shows_the_records_as_a_data_frame(small_records):
    pytest.importorskip("pandas")
    builder = tfds.builder_from_directory(small_records)
    frame = tfds.as_dataframe(builder.as_dataset(split="test").take(5), builder.info)
    assert set(frame.columns) == {"image", "key", "label"}
    assert frame["image"].iloc[0].shape == (32, 32, 3)
    names = builder.info.features["label"].names
    assert names == list(placeholder_images.LABEL_NAMES)
    # As a notebook shows it: the label by its name.
    page = frame._repr_html_()
    assert all(f"{label} ({names[label]})" in page for label in frame["label"])


def test_tfds_cuts_the_records_into_splits_as_it_does_its_own(small_records):
    builder = tfds.builder_from_directory(small_records)
    halves = [builder.as_dataset(split=split, as_supervised=True) for split in ("test[:50%]", "test[50%:]")]
    assert sum(len(half) for half in halves) == builder.info.splits["test"].num_examples
    assert builder.info.supervised_keys == ("image", "label")
