"""Augmentation: random operations on batches of images, in the input stream."""
