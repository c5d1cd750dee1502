"""Read ranges of a source's splits, and name the examples. Importing this module needs the standard library alone."""

import pkgutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.records.features import ImageForm
from pipeline.records.keys import index_key
from pipeline.sources.file_index import read_index
from pipeline.sources.source import SOURCES, Location, SourceInfo


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
    # The tokens of a text of any origin are in the source's artifact.
    kind = SOURCES.load("text" if info.is_sequence else info.origin)
    return pkgutil.resolve_name(kind.reader)(info, location, form, split, start, stop)


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
