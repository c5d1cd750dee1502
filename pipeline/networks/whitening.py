"""Whitening: the filters of a first convolution that make an image's patches white (the networks' aid).

Neighbouring pixels are much alike, so that the patches of natural images differ in a few directions far more than in
all others. Filters that are the eigenvectors of the patches' covariance, each divided by the root of its eigenvalue,
give outputs of variance 1 that are not correlated: what is learned behind them need not undo that first (Coates, Ng and
Lee 2011; as a frozen layer of a network trained in seconds: Page 2019, Jordan 2024).
"""

import math

import numpy as np

# Added to each variance: of patches that hardly differ in a direction noise is not made as large as all else.
_EPSILON = 5e-4
# Pixels of the images whose patches are counted at a time: 80 MB of float64 of 2×2 patches of three channels.
_AT_A_TIME = 800 * 32 * 32


def whitening_filters(images: np.ndarray, side: int, *, scale: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    """A kernel and a bias that whiten the patches of ``side`` × ``side`` pixels, and their negatives.

    Sums of products of uint8 are integers that float64 holds exactly, so that no order of adding them changes a bit.

    Args:
        images: uint8 (images, height, width, channels), at least ``side`` pixels a side.
        side: of a patch, in pixels.
        scale: a pixel reaches the filters as ``scale`` times it plus ``offset``.
        offset: see ``scale``.

    Returns:
        float32 (side, side, channels, 2 * n) with n = side² · channels, the direction of the greatest variance first
        and all negatives last, and float32 (2 * n,): filtered patches have the mean 0.
    """
    size = side * side * images.shape[-1]
    count, total, products = 0, np.zeros(size), np.zeros((size, size))
    at_a_time = max(_AT_A_TIME // math.prod(images.shape[1:3]), 1)
    for start in range(0, len(images), at_a_time):
        patches = _patches(images[start : start + at_a_time], side)
        count += len(patches)
        total += patches.sum(axis=0)
        products += patches.T @ patches
    mean = total / count
    covariance = (products / count - np.outer(mean, mean)) * scale**2
    variances, vectors = np.linalg.eigh(covariance)
    # Either sign is an eigenvector: the greatest component is the positive one, on every machine.
    vectors = vectors[:, ::-1] * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(size)])[::-1]
    filters = vectors / np.sqrt(np.maximum(variances[::-1], 0) + _EPSILON)
    filters = np.concatenate([filters, -filters], axis=1)
    bias = -(mean * scale + offset) @ filters
    return filters.reshape(side, side, -1, 2 * size).astype(np.float32), bias.astype(np.float32)


def _patches(images: np.ndarray, side: int) -> np.ndarray:
    """Every patch as a row, row by row of pixels and channels last, as a kernel has them: float64 (patches, size)."""
    height, width = (length - side + 1 for length in images.shape[1:3])
    parts = [images[:, row : row + height, column : column + width] for row in range(side) for column in range(side)]
    return np.concatenate(parts, axis=-1).reshape(-1, side * side * images.shape[-1]).astype(np.float64)
