"""Read ranges of a source's splits, and name the examples. Importing this module needs the standard library alone."""

import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.records.features import ImageForm
from pipeline.records.keys import index_key
from pipeline.sources.file_index import read_index
from pipeline.sources.source import SYNTHETIC, TFDS, Location, SourceInfo

#: Origin → the function that reads a range of a split, imported when it is used.
READERS = {
    TFDS: "pipeline.sources.tfds_reading:read_prepared",
    "folder": "pipeline.sources.image_reading:read_files",
    "table": "pipeline.sources.image_reading:read_files",
    SYNTHETIC: "pipeline.sources.placeholder_images:read_drawn",
}
#: The same for a text of any origin.
TEXT_READER = "pipeline.sources.text_reading:read_tokens"


def read_batches(
    info: SourceInfo, location: Location, form: ImageForm | None, split: str, start: int, stop: int
) -> Iterator[dict]:
    """Read the examples ``start`` to ``stop - 1`` of a split in the source's order, a few hundred at a time.

    A text is read as ``SourceInfo.cut`` cuts it, and ``form`` is None.

    Yields:
        By feature: images, uint8 (batch, height, width, channels) if stored raw, else a list of encoded images; int64
        labels (batch,); uint8 tokens (batch, length).

    Raises:
        DatasetUnavailableError: the prepared copy is missing and cannot be prepared again.
        DamagedArtefactError: the data are of another version, have changed, or cannot be read to the end.
        UnsupportedDatasetError: an example has no label.
    """
    reader = TEXT_READER if info.is_sequence else READERS[info.origin]
    return pkgutil.resolve_name(reader)(info, location, form, split, start, stop)


def example_keys(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """The keys of a split in the source's order, from the index if there is one."""
    return read_index(listing).splits[split].keys if listing else IndexKeys(split, num_examples)


def example_names(split: str, num_examples: int, listing: str) -> Sequence[str]:
    """Names of the examples for people: paths below the source's folder, else the keys."""
    return read_index(listing).splits[split].paths if listing else IndexKeys(split, num_examples)


@dataclass(frozen=True)
class IndexKeys(Sequence[str]):
    """Keys of examples without names. Each is made when it is used, as there may be a billion."""

    split: str
    num_examples: int

    def __len__(self) -> int:
        return self.num_examples

    def __getitem__(self, which: int | slice) -> str | list[str]:
        found = range(self.num_examples)[which]
        return index_key(self.split, found) if isinstance(found, int) else [index_key(self.split, at) for at in found]
