"""Views of an image for test-time augmentation. The mean over several predictions is more often correct.

A view selects the same rows and columns of every image, so that NumPy and TensorFlow gather identically.
"""

from dataclasses import dataclass

import numpy as np

NONE = "none"


@dataclass(frozen=True)
class View:
    """A view of an image. ``down`` and ``right`` shift it by pixels, with reflection at its edges."""

    weight: float
    mirrored: bool = False
    down: int = 0
    right: int = 0

    def sources(self, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the source of each row, int (height,), and of each column, int (width,)."""
        columns = _reflected(width, self.right)
        return _reflected(height, self.down), columns[::-1] if self.mirrored else columns

    def of(self, images: np.ndarray) -> np.ndarray:
        """Return this view of images (batch, height, width, channels). The identity view accepts any array."""
        if not (self.mirrored or self.down or self.right):
            return images
        rows, columns = self.sources(*images.shape[1:3])
        return images[:, rows][:, :, columns]


def _reflected(size: int, shift: int) -> np.ndarray:
    max_index = size - 1
    # A single row or column has no reflection.
    return np.clip(max_index - np.abs(max_index - np.abs(np.arange(size) - shift)), 0, max_index)


_SHIFTS = ((0.5, 0, 0), (0.25, 1, 1), (0.25, -1, -1))

#: Setting → views, whose weights add up to 1, from Jordan 2024. "flip" averages the image and its mirror image.
#: "flip_translate" uses half of that, and a quarter each of both shifted by a pixel to the lower right and upper left.
VIEWS = {
    NONE: (View(1.0),),
    "flip": (View(0.5), View(0.5, mirrored=True)),
    "flip_translate": tuple(
        View(weight / 2, mirrored, down, right) for weight, down, right in _SHIFTS for mirrored in (False, True)
    ),
}
