"""Views: an image as it is seen several times for one answer (image_classification's aid; test-time augmentation).

What a network says of an image and of its mirror image differs a little, and the mean of the two is more often right.
Its accuracy is a figure of its own beside the plain one: it takes as many times the operations as there are views.

A view is a choice of rows and columns, the same for every image, so that NumPy and TensorFlow gather alike.
"""

from dataclasses import dataclass

import numpy as np

NONE = "none"


@dataclass(frozen=True)
class View:
    """``down`` and ``right``: by how many pixels the image is moved, the rest reflected at its edges."""

    weight: float
    mirrored: bool = False
    down: int = 0
    right: int = 0

    def rows(self, height: int) -> np.ndarray:
        """Which row each row is, int (height,)."""
        return _reflected(height, self.down)

    def columns(self, width: int) -> np.ndarray:
        """Which column each column is, int (width,)."""
        columns = _reflected(width, self.right)
        return columns[::-1] if self.mirrored else columns

    def of(self, images: np.ndarray) -> np.ndarray:
        """The images (batch, height, width, channels) in this view; anything, in one that changes nothing."""
        if not (self.mirrored or self.down or self.right):
            return images
        height, width = images.shape[1:3]
        return images[:, self.rows(height)][:, :, self.columns(width)]


def _reflected(size: int, by: int) -> np.ndarray:
    last = size - 1
    # Of a single row or column there is nothing to reflect.
    return np.clip(last - np.abs(last - np.abs(np.arange(size) - by)), 0, last)


_PLACES = ((0.5, 0, 0), (0.25, 1, 1), (0.25, -1, -1))

#: By the setting; weights add up to 1. As Jordan 2024 has them: the image and its mirror image; or half of that, and a
#: quarter each of both moved by a pixel to the lower right and to the upper left.
VIEWS = {
    NONE: (View(1.0),),
    "flip": (View(0.5), View(0.5, mirrored=True)),
    "flip_translate": tuple(
        View(weight / 2, mirrored, down, right) for weight, down, right in _PLACES for mirrored in (False, True)
    ),
}
