"""NumPy files with arrays of images and labels, such as x_train and y_train, or images and labels."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline import machine
from pipeline.sources.containers import ContainerSource
from pipeline.sources.file_source import split_called
from pipeline.sources.files import Address, Example, cached_until_replaced, reading_damaged

_IMAGES, _LABELS = {"x", "image", "images"}, {"y", "label", "labels"}


@cached_until_replaced
def _array(path: Path, name: str) -> Any:
    import numpy as np

    with np.load(path, allow_pickle=False) as arrays:
        size = arrays.zip.getinfo(f"{name}.npy").file_size
        if size > machine.free_memory_bytes() // 2:
            raise ValueError(f"{name} has {size:,} bytes, more than half of the free memory")
        return arrays[name]


class Npz(ContainerSource):
    """A NumPy file of uint8 images and labels, or a folder of them."""

    file_names = r".*\.npz"

    @staticmethod
    def read(folder: str, address: Address) -> bytes:
        """Read an image. The address is a path, the name of the array and the row."""
        from pipeline.sources.image_files import as_png

        file, name, row = address
        with reading_damaged():
            return as_png(_array(Path(folder, file), name)[row])

    def rows(self, path: Path, file: str) -> tuple[Sequence[str], list[Example]]:
        import numpy as np

        examples = []
        with np.load(path, allow_pickle=False) as arrays:
            words = {name: re.findall("[a-z]+", name.lower()) for name in arrays.files}
        splits = {name: next(filter(None, map(split_called, its)), None) for name, its in words.items()}
        pairs = [
            (images, labels)
            for images in words
            for labels in words
            if splits[images] == splits[labels] and _IMAGES & {*words[images]} and _LABELS & {*words[labels]}
        ]
        if not pairs:
            self.refuse(f" It has the arrays {', '.join(words)}. Call them x_train and y_train, or images and labels.")
        for images, labels in pairs:
            pixels, values = _array(path, images), _array(path, labels)
            if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or pixels.shape[3:] not in ((), (1,), (3,)):
                self.refuse(f" {images} is {pixels.dtype} {pixels.shape}. Store uint8 (images, height, width, 3).")
            if values.size != len(pixels):
                self.refuse(f" {labels} has {values.size:,} values for {len(pixels):,} images. Store one label each.")
            rows = enumerate(values.reshape(-1).tolist())
            examples += [Example("", label, address=(file, images, row), split=splits[images]) for row, label in rows]
        return (), examples
