"""TFRecord files of other programs, such as those of TensorFlow Model Garden and TensorFlow Datasets."""

import itertools
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.sources.containers import ContainerSource
from pipeline.sources.files import Example

# Feature of the images → features of the labels, of Model Garden and of TensorFlow Datasets.
_PRESETS = {"image/encoded": ("image/class/text", "image/class/label"), "image": ("label",)}
_NAMES = ("image/filename", "file_name")
# A length and its checksum are before each record, another checksum is behind it.
_HEADER_BYTES, _FOOTER_BYTES = 12, 4


class TFRecord(ContainerSource):
    """An uncompressed TFRecord file of images and labels, or a folder of them."""

    file_names = r".*\.tfrecords?(-\d+-of-\d+)?|.*-\d+-of-\d+"

    def rows(self, path: Path, file: str) -> tuple[Sequence[str], list[Example]]:
        records = _records(path)
        first, examples = next(records, None), []
        if first is None:
            return (), examples
        present, settings = sorted(first[2]), self.settings
        images = [one for one in (settings.image_column, *_PRESETS) if one in present]
        image = self.column("image_column", images[:1], present)
        labels = [one for one in (settings.label_column, *_PRESETS.get(image, ())) if one in present]
        label = self.column("label_column", labels[:1], present)
        # TensorFlow Datasets writes it beside the files.
        names = path.parent / f"{label}.labels.txt"
        lines = names.read_text(encoding="utf-8").splitlines() if names.is_file() else ()
        for start, record, features in itertools.chain([first], records):
            content = features[image].bytes_list.value[0]
            values = features[label].int64_list.value or [text.decode() for text in features[label].bytes_list.value]
            paths = [features[name].bytes_list.value[0].decode() for name in _NAMES if name in features]
            address = (file, start + record.index(content), len(content))
            examples.append(Example(paths[0] if paths else "", values[0], address=address, split=None))
        return lines, examples


def _records(path: Path) -> Iterator[tuple[int, bytes, Mapping]]:
    """Yield start, content and features of each record."""
    import tensorflow as tf

    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        while header := stream.read(_HEADER_BYTES):
            (length,), start = struct.unpack("<Q", header[:8]), stream.tell()
            if start + length + _FOOTER_BYTES > size:
                raise ValueError("a record is cut off, or the file is compressed")
            record = stream.read(length)
            stream.seek(_FOOTER_BYTES, os.SEEK_CUR)
            yield start, record, tf.train.Example.FromString(record).features.feature
