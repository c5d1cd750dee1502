"""Parquet files with embedded images, as Hugging Face ``datasets`` writes them.

A column contains the images, as bytes or as structs of bytes and path. Names of numbered labels are in the schema.
"""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.sources.containers import MAX_BYTES, ContainerSource
from pipeline.sources.files import Address, Example, UndecodableError, cached_until_replaced, reading_damaged
from pipeline.sources.table import KNOWN_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa


@cached_until_replaced
def _images(path: str, column: str, group: int) -> "pa.ChunkedArray":
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        size = file.metadata.row_group(group).total_byte_size
        if size > MAX_BYTES:
            raise UndecodableError(
                "a row group is too large", f"{size:,} bytes, write the file with a row_group_size of 100"
            )
        return file.read_row_group(group, columns=[column])[column]


class Parquet(ContainerSource):
    """A Parquet file with a column of images, or a folder of them."""

    file_names = r".*\.parquet"

    @staticmethod
    def read(folder: str, address: Address) -> bytes:
        """Read an image. The address is a path, the column, the row group and the row in it."""
        file, column, group, row = address
        with reading_damaged():
            image = _images(os.path.join(folder, file), column, group)[row].as_py()
        image = image["bytes"] if isinstance(image, dict) else image
        if image is None:
            raise UndecodableError("the image is not embedded")
        return image

    @classmethod
    def has_file(cls, path: Path) -> bool:
        if not cls.has_name(path.name):
            return False
        import pyarrow as pa
        from pyarrow.parquet import read_schema

        with suppress(OSError, pa.ArrowException):
            return bool(_image_columns(read_schema(path)))
        return False

    def rows(self, path: Path, file: str) -> tuple[Sequence[str], list[Example]]:
        from pyarrow.parquet import ParquetFile, read_schema

        schema, examples = read_schema(path), []
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {}).get("features", {})
        labels = [name for name in schema.names if features.get(name, {}).get("_type") == "ClassLabel"]
        labels = labels or [name for name in schema.names if name.lower() in KNOWN_COLUMNS["label"]]
        if self.settings.label_column in schema.names:
            labels = [self.settings.label_column]
        image = self.column("image_column", _image_columns(schema), schema.names)
        label = self.column("label_column", labels, schema.names)
        split, group = (
            self.column(setting, schema.names, schema.names) if getattr(self.settings, setting) else ""
            for setting in ("split_column", "group_column")
        )
        with ParquetFile(path) as parquet:
            num_rows, num_bytes = parquet.metadata.num_rows, path.stat().st_size
            if num_rows > num_bytes:
                raise ValueError(f"{num_rows:,} rows in {num_bytes:,} bytes")
            columns = list(filter(None, (f"{image}.path", label, split, group)))
            for number in range(parquet.num_row_groups):
                for row, values in enumerate(parquet.read_row_group(number, columns=columns).to_pylist()):
                    stored, value = values.get(image) or {}, values.get(group)
                    name, address = stored.get("path") or "", (file, image, number, row)
                    of_group = "" if value is None else str(value)
                    examples.append(Example(name, values[label], (), address, of_group, values.get(split)))
        return features.get(label, {}).get("names") or (), examples


def _image_columns(schema: "pa.Schema") -> list[str]:
    """The columns of bytes, or of structs that contain bytes."""
    import pyarrow as pa

    def has_bytes(kind: "pa.DataType") -> bool:
        return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)

    return [
        field.name
        for field in schema
        if has_bytes(field.type)
        or (pa.types.is_struct(field.type) and any(one.name == "bytes" and has_bytes(one.type) for one in field.type))
    ]
