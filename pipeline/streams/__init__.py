"""Input streams: batches of a split of the records, for tf.data and as NumPy arrays."""
