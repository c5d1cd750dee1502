"""Perceptual hashes of images, and the test images that differ little from a train image.

A hash contains the signs of the 16 × 16 lowest frequencies of a gray image, like pHash (Zauner 2010) with more bits.
Another size, quality, color or brightness changes few of the bits. docs/LOG.md has the measurements.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from pipeline import machine
from pipeline.sources.image_files import gray_pixels

_SIDE = 16
#: Number of 16-bit words of a hash.
HASH_WORDS = _SIDE
# Two hashes that differ in fewer bits than they have words are equal in at least one word.
MAX_BITS = HASH_WORDS - 1
# Words of diagonals are more evenly distributed than those of rows, so they have a twentieth of the candidates.
_ROWS, _COLUMNS = np.divmod(np.arange(_SIDE**2), _SIDE)
_BIT_ORDER = np.lexsort((_ROWS, (_ROWS + _COLUMNS) % _SIDE))
# Side of decoded images, so that libjpeg skips most of the work.
_DECODED_SIDE = 64
# A candidate takes about 100 bytes.
_CANDIDATES_AT_ONCE = 400_000
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def image_hashes(images: np.ndarray | Sequence[bytes]) -> np.ndarray:
    """Hashes of images, uint16 (batch, HASH_WORDS), from pixels or files. A black image has the hash 0."""
    if isinstance(images, np.ndarray):
        pixels = images.astype(np.float32)
        return _signs(pixels @ _LUMA if images.shape[-1] == len(_LUMA) else pixels[..., 0])

    def of_file(content: bytes) -> np.ndarray:
        return _signs(gray_pixels(content, _DECODED_SIDE)[None].astype(np.float32))

    with ThreadPoolExecutor(machine.granted_cores()) as pool:
        return np.concatenate([*pool.map(of_file, images)])


def near_duplicates(train: np.ndarray, test: np.ndarray) -> dict[int, tuple[int, int]]:
    """Position in test → nearest position in train, and the number of different bits, at most MAX_BITS.

    Images that are too different are left out, and so are black ones. Arguments are those of ``image_hashes``.
    """
    is_black, none = ~test.any(axis=1), np.iinfo(np.int64).max
    # Number of bits and position, as one number that is smallest for the nearest image.
    nearest = np.full(len(test), none)
    train, first = np.unique(train, axis=0, return_index=True)
    for word in range(HASH_WORDS):
        order = np.argsort(train[:, word], kind="stable")
        values = train[order, word]
        starts = np.searchsorted(values, test[:, word], side="left")
        counts = np.where(is_black, 0, np.searchsorted(values, test[:, word], side="right") - starts)
        # A part has at least one test image.
        parts = np.cumsum(counts) // _CANDIDATES_AT_ONCE
        for part in np.split(np.arange(len(test)), np.flatnonzero(np.diff(parts)) + 1):
            positions = np.repeat(part, counts[part])
            offsets = np.arange(len(positions)) - np.repeat(np.cumsum(counts[part]) - counts[part], counts[part])
            others = order[np.repeat(starts[part], counts[part]) + offsets]
            bits = np.bitwise_count(train[others] ^ test[positions]).sum(axis=1)
            is_near = bits <= MAX_BITS
            found = (bits[is_near].astype(np.int64) << 48) + first[others[is_near]]
            np.minimum.at(nearest, positions[is_near], found)
    positions = np.flatnonzero(nearest < none)
    bits, others = nearest[positions] >> 48, nearest[positions] & (1 << 48) - 1
    return dict(zip(positions.tolist(), zip(others.tolist(), bits.tolist(), strict=True), strict=True))


def _signs(gray: np.ndarray) -> np.ndarray:
    """Hashes of gray images, float32 (batch, height, width)."""
    frequencies = _waves(gray.shape[1]) @ gray @ _waves(gray.shape[2]).T
    # Rounding errors of images of one color are smaller.
    bits = (frequencies > 1e-3 * gray[0].size).reshape(len(gray), -1)[:, _BIT_ORDER]
    return np.packbits(np.ascontiguousarray(bits), axis=1).view("<u2")


@cache
def _waves(size: int) -> np.ndarray:
    """Cosines of the lowest frequencies, float32 (_SIDE, size)."""
    angles = np.outer(np.arange(_SIDE), 2 * np.arange(size) + 1)
    return np.cos(np.pi / (2 * size) * angles).astype(np.float32)
