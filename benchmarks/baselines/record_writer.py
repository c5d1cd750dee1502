"""TensorFlow's tutorial on TFRecords: build a tf.train.Example, serialize it, write it; a loop over arrays in memory.

tensorflow.org/tutorials/load_data/tfrecord, one file a split.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline.streams.tf_data import InputStream, Split

Arrays = Mapping[str, tuple[np.ndarray, np.ndarray]]


def arrays(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a whole split."""
    stream = InputStream(split, global_batch_size=split.num_examples, seed=0, in_memory=True)
    return next(stream.evaluation().as_numpy_iterator())


def write(data: Arrays, folder: Path) -> None:
    """Write each split's examples to a file of its own."""
    folder.mkdir()
    for split, (images, labels) in data.items():
        with tf.io.TFRecordWriter(str(folder / f"{split}.tfrecord")) as writer:
            for image, label in zip(images, labels, strict=True):
                feature = {
                    "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image.tobytes()])),
                    "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())
