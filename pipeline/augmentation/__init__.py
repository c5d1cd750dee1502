"""Augmentation: random operations on the images of the train split, in the input stream, on uint8 images.

An image's result depends only on the seed, the epoch and its place in the split. Keras's layers draw from a state that
each call advances, so a result would depend on the batches before and change after a resume. docs/LOG.md has the costs.
"""
