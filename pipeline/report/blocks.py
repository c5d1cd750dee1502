"""The blocks of a report's sections. Their text is plain; the renderers escape it.

A block without data is false. It is not rendered.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from pipeline.report.formats import NO_FIGURE

# A screen reader reads the alternative text of a chart as a whole.
_MOST_ALTERNATIVE_ROWS = 16


@dataclass(frozen=True)
class Cell:
    """A cell: its text, smaller ``notes`` below it, and a ``tag`` and ``alarms`` as labels. Empty notes are omitted.

    ``needs_care``: colored. ``share``: depth of its background, from 0 to 1. ``series``: indices of a run's curves.
    """

    text: str
    notes: Sequence[str] = ()
    tag: str = ""
    alarms: Sequence[str] = ()
    needs_care: bool = False
    share: float | None = None
    is_right: bool = False
    series: Sequence[int] = ()

    def __str__(self) -> str:
        return self.text

    def lines(self) -> list[str]:
        """Its text, line by line, without the tag."""
        return [line for line in (self.text, *self.notes, *self.alarms) if line]


@dataclass(frozen=True)
class Column:
    """The title of a column of words or numbers."""

    title: str
    is_number: bool = False


def words(*titles: str) -> list[Column]:
    """Columns of words."""
    return [Column(title) for title in titles]


def figures(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, is_number=True) for title in titles]


@dataclass(frozen=True)
class Group:
    """Rows of a table below a title. ``is_aside``: they were not measured here."""

    title: str
    rows: Sequence[Sequence[str | Cell]]
    notes: Sequence[str] = ()
    is_aside: bool = False


@dataclass(frozen=True)
class Table:
    """Rows with a cell for each column. A row is highlighted if its first cell has a tag.

    ``label``: its name for screen readers. ``style``: CSS classes. ``brief``: a narrow version for terminals.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | Cell]] = ()
    groups: Sequence[Group] = ()
    label: str = ""
    caption: str = ""
    style: str = ""
    brief: "Table | None" = None

    def __bool__(self) -> bool:
        return any(group.rows for group in (self, *self.groups))

    def shown(self) -> tuple[list[Column], list[Group]]:
        """The columns in which some row has a value, and the cells of these columns by group."""
        groups = [
            replace(group, rows=[[*map(_cell, row)] for row in group.rows])
            for group in (Group("", self.rows), *self.groups)
            if group.rows
        ]
        rows = [row for group in groups for row in group.rows]
        have_values = [any(cell.text not in ("", NO_FIGURE) for cell in cells) for cells in zip(*rows, strict=True)]
        is_shown = [True, *have_values[1:]]
        return list(compress(self.columns, is_shown)), [
            replace(group, rows=[list(compress(row, is_shown)) for row in group.rows]) for group in groups
        ]


def _cell(value: str | Cell) -> Cell:
    return value if isinstance(value, Cell) else Cell(value)


@dataclass(frozen=True)
class Facts:
    """Terms with their values. ``style``: "tiles", "facts", "facts seconds" or "definitions"."""

    pairs: Sequence[tuple[str, str]]
    style: str = "facts"

    def __bool__(self) -> bool:
        return bool(self.pairs)


@dataclass(frozen=True)
class Chart:
    """A drawing with its data in words. ``plot`` draws into the axes of so many ``panels``, or ``shares`` are a bar.

    ``legend``: name and note of each line. ``num_drawn``: the reader chooses the lines, at first so many are chosen.
    ``data``: by default that of the legend. ``has_table``: the table beside it has the same data.
    """

    caption: str
    plot: Callable[..., None] | None = None
    data: Sequence[str] = ()
    note: str = ""
    legend: Sequence[tuple[str, str]] = ()
    panels: int = 2
    shares: Sequence[float] = ()
    num_drawn: int = 0
    has_table: bool = False

    def rows(self) -> list[str]:
        """The data, a line for each row."""
        return [*self.data] or [f"{name}: {note}" if note else name for name, note in self.legend]

    def alternative(self) -> str:
        """The text for those who do not see it: the caption and the data, of many rows the first and the last."""
        rows = self.rows()
        return f"{self.caption}. {'; '.join(rows if len(rows) <= _MOST_ALTERNATIVE_ROWS else (rows[0], rows[-1]))}."


@dataclass(frozen=True)
class Text:
    """A paragraph, or with another ``kind`` a heading, a note, a finding, prose, or the mark of a list.

    ``shades``: parts of prose, each with the depth of its background from 0 to 8. ``lead``: its beginning, in bold.
    """

    text: str = ""
    kind: str = "paragraph"
    lead: str = ""
    shades: Sequence[tuple[str, int]] = ()

    def __bool__(self) -> bool:
        return bool(self.text or self.lead or self.shades)


@dataclass(frozen=True)
class Picture:
    """An image of a gallery: a PNG in base64, which may be missing, with its captions."""

    png: str
    alternative: str
    title: str = ""
    value: str = ""
    note: str = ""
    is_mistake: bool = False


@dataclass(frozen=True)
class Gallery:
    """Images in rows."""

    pictures: Sequence[Picture]

    def __bool__(self) -> bool:
        return bool(self.pictures)


@dataclass(frozen=True)
class Box:
    """Blocks in a box: "fold" with a summary, "pair" side by side, or "part" of a pair."""

    kind: str
    blocks: Sequence["Block"]
    summary: str = ""
    note: str = ""
    is_open: bool = False
    style: str = ""

    def __bool__(self) -> bool:
        return any(self.blocks)


Block = Table | Facts | Chart | Text | Gallery | Box


def titled(title: str, *blocks: Block) -> list[Block]:
    """The blocks below a heading, if there are any."""
    return [Text(title, "heading"), *blocks] if any(blocks) else []


@dataclass(frozen=True)
class Section:
    """A part of the report with a title."""

    name: str
    title: str
    blocks: Sequence[Block]
