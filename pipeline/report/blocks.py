"""Blocks of report sections. Their text is plain, and the renderers escape it.

A block without data is false and is not rendered.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

from pipeline.report.formats import MISSING

# A screen reader cannot skip within the alternative text of a chart.
_MAX_ALTERNATIVE_ROWS = 16


@dataclass(frozen=True)
class Cell:
    """A cell of a table, with its text, smaller ``notes`` below it, and a ``tag`` and ``alarms`` as labels.

    ``needs_care`` colors it. ``share`` is the depth of its background from 0 to 1. The text links to ``anchor``, an id
    of the page. Empty notes are omitted.
    """

    text: str
    notes: Sequence[str] = ()
    tag: str = ""
    alarms: Sequence[str] = ()
    needs_care: bool = False
    share: float | None = None
    is_right: bool = False
    anchor: str = ""

    def lines(self) -> list[str]:
        """Return its text line by line, without the tag."""
        return [line for line in (self.text, *self.notes, *self.alarms) if line]


@dataclass(frozen=True)
class Column:
    """A column of text or numbers. The reader can show an ``is_hidden`` column of the page."""

    title: str
    is_number: bool = False
    is_hidden: bool = False


def words(*titles: str, is_hidden: bool = False) -> list[Column]:
    """Return columns of text."""
    return [Column(title, is_hidden=is_hidden) for title in titles]


def numbers(*titles: str) -> list[Column]:
    """Return columns of numbers."""
    return [Column(title, is_number=True) for title in titles]


@dataclass(frozen=True)
class Table:
    """Rows with a cell per column. A row is highlighted if a cell has a tag. The ``head``-th cell names the row.

    ``label`` is the name for screen readers. ``style`` lists CSS classes.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]] = ()
    label: str = ""
    caption: str = ""
    style: str = ""
    head: int = 0

    def __bool__(self) -> bool:
        return bool(self.rows)

    def visible(self, *, has_hidden: bool = False) -> tuple[list[Column], list[list[Cell]]]:
        """Return the columns that have a value in any row, and the rows with the cells of these columns.

        Columns up to the name of the row are always visible. Hidden columns are returned on request.
        """
        rows = [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in self.rows]
        has_values = [any(cell.text not in ("", MISSING) for cell in cells) for cells in zip(*rows, strict=True)]
        is_visible = [
            index <= self.head or (has_value and (has_hidden or not column.is_hidden))
            for index, (column, has_value) in enumerate(zip(self.columns, has_values, strict=False))
        ]
        return list(compress(self.columns, is_visible)), [list(compress(row, is_visible)) for row in rows]


@dataclass(frozen=True)
class Facts:
    """Terms with their values. ``style`` is "tiles", "facts", "facts seconds" or "definitions"."""

    pairs: Sequence[tuple[str, str]]
    style: str = "facts"

    def __bool__(self) -> bool:
        return bool(self.pairs)


@dataclass(frozen=True)
class Links:
    """Names with addresses relative to the report, and contents of ``files`` beside it. Only a section has files."""

    pairs: Sequence[tuple[str, str]]
    files: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.pairs)


@dataclass(frozen=True)
class Chart:
    """A drawing with its data as text. ``plot`` draws into the axes of the ``panels``. ``shares`` make a bar instead.

    ``legend`` contains a name and a note per line, for lines without labels. ``data`` defaults to the legend.
    ``has_table`` means that a table has the same data.
    Two panels are large. Any other number of them is small, side by side.
    """

    caption: str
    plot: Callable[..., None] | None = None
    data: Sequence[str] = ()
    note: str = ""
    legend: Sequence[tuple[str, str]] = ()
    panels: int = 2
    shares: Sequence[float] = ()
    has_table: bool = False

    def rows(self) -> list[str]:
        """Return the data, a line per row."""
        return [*self.data] or [f"{name}: {note}" if note else name for name, note in self.legend]

    def alternative(self) -> str:
        """Return the text alternative with the caption and the data, for long data the first and the last row."""
        rows = self.rows()
        return f"{self.caption}. {'; '.join(rows if len(rows) <= _MAX_ALTERNATIVE_ROWS else (rows[0], rows[-1]))}."


@dataclass(frozen=True)
class Text:
    """A paragraph, or another ``kind`` such as a heading, a note, a finding, a command or prose.

    ``shades`` are pieces of prose with the depth of their background from 0 to 8. ``lead`` is a beginning in bold.
    """

    text: str = ""
    kind: str = "paragraph"
    lead: str = ""
    shades: Sequence[tuple[str, int]] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.lead or self.shades)


@dataclass(frozen=True)
class Picture:
    """An image or a text of a gallery with its captions. The base64 PNG and the text may be empty.

    The page shows as much of the ``note`` as fits. It filters the pictures by their ``labels``, actual and predicted.
    """

    png: str
    alternative: str
    title: str = ""
    note: str = ""
    labels: tuple[str, str] | None = None
    is_mistake: bool = False
    text: str = ""


@dataclass(frozen=True)
class Gallery:
    """Images or texts in rows, below a ``title`` if there is one."""

    pictures: Sequence[Picture]
    title: str = ""

    def __bool__(self) -> bool:
        return bool(self.pictures or self.title)


@dataclass(frozen=True)
class Box:
    """Blocks in a box, which is a "fold" with a summary, a "pair" side by side, or a "part" of a pair.

    "groups" are galleries in columns, and "pictures" are blocks with galleries that the page filters by label.
    ``anchor`` is the id of the box. It is unique on the page.
    """

    kind: str
    blocks: Sequence["Block"]
    summary: str = ""
    note: str = ""
    is_open: bool = False
    style: str = ""
    anchor: str = ""

    def __bool__(self) -> bool:
        return any(self.blocks)


Block = Table | Facts | Links | Chart | Text | Gallery | Box


def titled(title: str, *blocks: Block) -> list[Block]:
    """Return the blocks below a heading, or nothing without blocks."""
    return [Text(title, "heading"), *blocks] if any(blocks) else []


@dataclass(frozen=True)
class Section:
    """A titled section of the report."""

    name: str
    title: str
    blocks: Sequence[Block]
