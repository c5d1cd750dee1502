"""Keras's own way from NumPy arrays to batches: what ``model.fit(x, y)`` iterates over."""

import numpy as np
import tensorflow as tf

# Not public, but what fit uses: called by itself, it can be timed without a model.
from keras.src.trainers.data_adapters.array_data_adapter import ArrayDataAdapter


def dataset(images: np.ndarray, labels: np.ndarray, batch_size: int) -> tf.data.Dataset:
    """Shuffled batches; each pass is in a new order."""
    return ArrayDataAdapter(images, labels, batch_size=batch_size, shuffle=True).get_tf_dataset()
