"""Input streams that yield batches of a split of the records, through tf.data or as NumPy arrays."""
