"""Views of an image for test-time augmentation: the mean over several predictions is more often right.

A view selects rows and columns, the same for every image, so that NumPy and TensorFlow gather alike.
"""

from dataclasses import dataclass

import numpy as np

NONE = "none"


@dataclass(frozen=True)
class View:
    """``down`` and ``right``: pixels that the image is moved, with reflection at its edges."""

    weight: float
    mirrored: bool = False
    down: int = 0
    right: int = 0

    def sources(self, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """The source of each row, int (height,), and of each column, int (width,)."""
        columns = _reflected(width, self.right)
        return _reflected(height, self.down), columns[::-1] if self.mirrored else columns

    def of(self, images: np.ndarray) -> np.ndarray:
        """The images (batch, height, width, channels) in this view. The plain view takes any array."""
        if not (self.mirrored or self.down or self.right):
            return images
        rows, columns = self.sources(*images.shape[1:3])
        return images[:, rows][:, :, columns]


def _reflected(size: int, by: int) -> np.ndarray:
    last = size - 1
    # A single row or column has no reflection.
    return np.clip(last - np.abs(last - np.abs(np.arange(size) - by)), 0, last)


_PLACES = ((0.5, 0, 0), (0.25, 1, 1), (0.25, -1, -1))

#: By the setting; weights add up to 1. From Jordan 2024: the image and its mirror image; or half of that, and a quarter
#: each of both moved by one pixel to the lower right and to the upper left.
VIEWS = {
    NONE: (View(1.0),),
    "flip": (View(0.5), View(0.5, mirrored=True)),
    "flip_translate": tuple(
        View(weight / 2, mirrored, down, right) for weight, down, right in _PLACES for mirrored in (False, True)
    ),
}
