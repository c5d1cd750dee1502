import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tfrecord import parse_example, read_records

from pipeline.records.features import image_spec


def setup_module() -> None:
    global FixedLayout, decode_rows, parse_batch, serialize, tf
    import tensorflow as tf

    from pipeline.records.example import FixedLayout, decode_rows, parse_batch, serialize


@st.composite
def batches(draw):
    """A layout, and images, labels and indices that fit it."""
    num_labels = draw(st.sampled_from([1, 2, 10, 128, 129, 1_000, 16_384, 16_385, 100_000]))
    shape = draw(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)))
    size = draw(st.integers(1, 4))
    return (
        FixedLayout(image_spec(shape), num_labels, len(f"{draw(st.sampled_from(['train', 'test']))}-000000000")),
        draw(arrays(np.uint8, (size, *shape))),
        draw(arrays(np.int64, size, elements=st.integers(0, num_labels - 1))),
        draw(arrays(np.int64, size, elements=st.integers(0, 999_999_999))),
    )


def key_of(layout, index):
    split = next(split for split in ("train", "test") if len(f"{split}-{0:09d}") == layout.key_bytes)
    return f"{split}-{index:09d}"


def encoded(layout, images, labels, indices):
    keys = np.array([list(key_of(layout, index).encode()) for index in indices], np.uint8)
    return layout.encode({"image": images, "label": labels, "key": keys})


@given(batch=batches())
def test_a_record_holds_what_was_put_in(tmp_path_factory, batch):
    layout, images, labels, indices = batch
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    path.write_bytes(encoded(*batch).tobytes())
    records = list(read_records(path))
    assert [parse_example(record) for record in records] == [
        {"image": image.tobytes(), "label": label, "key": key_of(layout, index).encode()}
        for image, label, index in zip(images, labels, indices, strict=True)
    ]


# Batches of many shapes: TensorFlow parses each by a graph of its own.
@settings(max_examples=25)
@given(batch=batches())
def test_tensorflow_reads_what_was_put_in(tmp_path_factory, batch):
    layout, images, labels, _ = batch
    path = tmp_path_factory.mktemp("records") / "a.tfrecord"
    path.write_bytes(encoded(*batch).tobytes())
    serialized = tf.constant(list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()))
    parsed = parse_batch(serialized, layout.spec)
    np.testing.assert_array_equal(parsed["image"], images)
    np.testing.assert_array_equal(parsed["label"], labels)


# The first example traces.
@settings(deadline=None, max_examples=40)
@given(batch=batches())
def test_decoding_gives_what_was_encoded(batch):
    layout, images, labels, _ = batch
    frames = encoded(*batch)
    assert frames.shape == (len(images), layout.frame_bytes)
    decoded = decode_rows(layout.rows, tf.constant(frames))
    assert (decoded["image"].dtype, decoded["label"].dtype) == (tf.uint8, tf.int32)
    for found in (decoded, layout.rows.columns(frames)):
        np.testing.assert_array_equal(found["image"], images)
        np.testing.assert_array_equal(found["label"], labels)


@settings(max_examples=50)
@given(batch=batches())
def test_a_record_is_protobufs_own_where_the_label_needs_no_padding(batch):
    layout, images, labels, indices = batch
    for frame, image, label, index in zip(encoded(*batch), images, labels, indices, strict=True):
        record = serialize({"image": image.tobytes(), "label": int(label), "key": key_of(layout, index).encode()})
        assert len(record) <= layout.frame_bytes - 16
        if len(record) == layout.frame_bytes - 16:
            assert frame[12:-4].tobytes() == record
        # Padded or not, protobuf reads the same Example.
        assert tf.train.Example.FromString(frame[12:-4].tobytes()) == tf.train.Example.FromString(record)


@pytest.mark.parametrize(
    ("num_labels", "label_bytes"), [(1, 1), (2, 1), (128, 1), (129, 2), (16_384, 2), (16_385, 3), (100_000, 3)]
)
def test_the_label_takes_the_bytes_of_the_greatest(num_labels, label_bytes):
    assert FixedLayout(image_spec((2, 2, 1)), num_labels, 5).label_bytes == label_bytes


def test_equal_examples_have_equal_bytes():
    assert len({serialize({"image": b"\x00" * 12, "label": 3, "key": b"train-000000001"}) for _ in range(20)}) == 1
