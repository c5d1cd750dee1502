"""A table of texts in CSV, TSV or Parquet, with a row per text."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.sources.file_index import Example
from pipeline.sources.file_source import SourceFiles
from pipeline.sources.files import stamps_of
from pipeline.sources.labeled_texts import LabeledTexts
from pipeline.sources.table import KNOWN_COLUMNS, Table
from pipeline.sources.table_labels import CLASSES


class TextTable(LabeledTexts, Table):
    """A file of texts, their labels and optionally their splits. A text is called after the number of its row."""

    content_column = "text_column"

    @classmethod
    def has_file(cls, path: Path) -> bool:
        """Whether a file is a table with a column of texts, and none of paths."""
        names = {name.lower() for name in cls.names_in(path)}
        texts, paths = (names & {kind, *KNOWN_COLUMNS[kind]} for kind in ("text", "path"))
        return bool(texts) and not paths

    def names_of(self, cells: Sequence[str]) -> list[str]:
        """Names of the texts."""
        return [f"row {number}" for number in range(1, len(cells) + 1)]

    def find_files(self) -> SourceFiles:
        """The texts in the table."""
        cells, targets, rows = self.examples()
        if targets.problem != CLASSES:
            self.refuse(f" It is for the problem {targets.problem} of images.", "a column of labels", "label_column")
        contents = {example.path: cell for cell, (_, example) in zip(cells, rows, strict=True)}
        return SourceFiles(rows, stamps_of(self.folder(), [self.path.name]), targets.names, cells=contents)

    def content(self, folder: Path, files: SourceFiles, example: Example) -> bytes:
        """The cell of a text."""
        return files.cells[example.path].encode()
