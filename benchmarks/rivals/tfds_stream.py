"""TensorFlow Datasets' guide to training with Keras: load, map, cache, shuffle, batch, prefetch.

tensorflow.org/datasets/keras_example. The map only casts the label, so that both streams yield the same.
"""

import tensorflow as tf
import tensorflow_datasets as tfds


def dataset(data_dir: str, batch_size: int) -> tf.data.Dataset:
    """uint8 images (batch, 32, 32, 3) and int32 labels (batch,) of CIFAR-10's train split."""
    examples, info = tfds.load(
        "cifar10", split="train", data_dir=data_dir or None, shuffle_files=True, as_supervised=True, with_info=True
    )
    examples = examples.map(lambda image, label: (image, tf.cast(label, tf.int32)), num_parallel_calls=tf.data.AUTOTUNE)
    examples = examples.cache().shuffle(info.splits["train"].num_examples)
    return examples.batch(batch_size).prefetch(tf.data.AUTOTUNE)
