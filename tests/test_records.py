import numpy as np
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tfrecord import parse_example, read_records

from pipeline.records import feature_spec, parse_batch, serialize, write_tfrecord

images = arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 3)))


@given(image=images, label=st.integers(0, 2**31 - 1), key=st.text(max_size=20))
def test_a_record_holds_what_was_put_in(image, label, key):
    record = serialize(image.tobytes(), label, key)
    assert parse_example(record) == {"image": image.tobytes(), "label": label, "key": key.encode()}
    parsed_images, parsed_labels = parse_batch(tf.constant([record, record]), feature_spec(image.shape))
    assert parsed_images.dtype == tf.uint8
    assert parsed_labels.dtype == tf.int32
    np.testing.assert_array_equal(parsed_images.numpy(), np.stack([image, image]))
    assert parsed_labels.numpy().tolist() == [label, label]


def test_equal_examples_have_equal_bytes():
    assert len({serialize(b"\x00" * 12, 3, "train-000000001") for _ in range(20)}) == 1


def test_a_file_is_whole_or_not_there(tmp_path):
    def breaks():
        yield b"one"
        raise RuntimeError("source gone")

    path = tmp_path / "a.tfrecord"
    try:
        write_tfrecord(path, breaks())
    except RuntimeError:
        assert not path.exists()
    write_tfrecord(path, [b"one", b"two"])
    assert list(read_records(path)) == [b"one", b"two"]
