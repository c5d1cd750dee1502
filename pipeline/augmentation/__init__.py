"""Augmentation of image batches in the input stream."""
