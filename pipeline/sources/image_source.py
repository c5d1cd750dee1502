"""The base class of sources of images.

Every image is checked, so that the number and positions of the examples are certain before a record is written.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pipeline.records.features import Feature, image_spec
from pipeline.settings.data import FULL_RANGE, SourceSettings
from pipeline.sources.file_index import Address, FileIndex, Skipped
from pipeline.sources.file_source import LabeledSource, SourceFiles
from pipeline.sources.files import read_below
from pipeline.sources.source import SourceInfo

if TYPE_CHECKING:
    from pipeline.sources.image_files import Picture

# Type of the values of an example with a value per label or target, by problem.
_VECTOR_TYPES = {"multi_label": "uint8", "regression": "float32"}
# Share of the 65,536 values. Images of 10, 12 and 14 bits use a 64th to a quarter of them.
_LITTLE_OF_THE_RANGE = 0.25

_logger = logging.getLogger(__name__)


class ImageSource(LabeledSource):
    """Image files. Subclasses find the files and their labels."""

    reader = "pipeline.sources.image_reading:read_images"
    #: Reads the file of an image, from the folder and the example's address, or its path if it has none.
    read: ClassVar[Callable[[str, Address | str], bytes]] = staticmethod(read_below)

    def examine(
        self, folder: Path, files: SourceFiles, artifact: Path | None
    ) -> tuple[Mapping[str, "Picture"], Sequence[Skipped]]:
        """Check every image."""
        # Luigi's process imports this module, but no Pillow.
        from pipeline.sources.image_files import examine

        return examine(self.read, folder, [example for _, example in files.rows])

    def describe(self, index: FileIndex, files: SourceFiles, examined: Sequence["Picture"]) -> SourceInfo:
        """Describe the images."""
        pictures = examined
        encodings = {picture.encoding for picture in pictures}
        shapes = {(picture.height, picture.width) for picture in pictures}
        sides = sorted(min(picture.height, picture.width) for picture in pictures)
        sizes = next(iter(shapes)) if len(shapes) == 1 else (None, None)
        channels = 1 if all(picture.gray for picture in pictures) else 3
        return SourceInfo(
            features=image_spec(
                (*sizes, channels), encodings.pop() if len(encodings) == 1 else "image", _label_feature(files)
            ),
            problem=files.problem,
            bytes_per_example=sum(picture.num_bytes for picture in pictures) // len(pictures),
            shorter_sides=(sides[0], sides[len(sides) // 2], sides[-1]),
            value_range=_value_range(self.settings, [picture.levels for picture in pictures if picture.levels]),
            **self.common_facts(index, files),
        )


def _label_feature(files: SourceFiles) -> Feature:
    if files.problem in _VECTOR_TYPES:
        return Feature((len(files.label_names),), _VECTOR_TYPES[files.problem])
    return Feature((), "int64")


def _value_range(settings: SourceSettings, levels: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The 16-bit values that become black and white, from the value range of each 16-bit image."""
    if not levels:
        return FULL_RANGE
    low, high = min(low for low, _ in levels), max(high for _, high in levels)
    if settings.value_range == "data":
        return (low, high) if low < high else FULL_RANGE
    if settings.value_range != "full":
        low, high = map(int, settings.value_range.split(","))
        return low, high
    share = (high - low) / FULL_RANGE[1]
    if share <= _LITTLE_OF_THE_RANGE:
        _logger.warning(
            f"{len(levels):,} images of 16 bits have values from {low:,} to {high:,}, {100 * share:.1f}% of the range. "
            "They look dark or flat. Set [Source] value_range to data, or to the values of black and white such as "
            "0, 4095."
        )
    return FULL_RANGE
