"""The blocks of a report's sections. Their text is plain; the renderers escape it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.formats import NO_FIGURE

#: Styles of tables with two columns that are shown as a list of terms with their values.
LISTS = ("tiles", "facts", "facts seconds", "definitions")
# A screen reader reads the alternative text of a chart as a whole.
_MOST_ALTERNATIVE_ROWS = 16


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A cell: its text, smaller ``notes`` below it, and ``tags`` and ``alarms`` as labels.

    ``needs_care``: colored. ``share``: depth of its background, from 0 to 1. ``series``: indices of a run's curves.
    """

    text: str
    notes: Sequence[str] = ()
    tags: Sequence[str] = ()
    alarms: Sequence[str] = ()
    needs_care: bool = False
    share: float | None = None
    is_right: bool = False
    series: Sequence[int] = ()

    def lines(self) -> list[str]:
        """Its text, line by line, without the tags."""
        return [line for line in (self.text, *self.notes, *self.alarms) if line]


@dataclass(frozen=True)
class Column:
    """A column: its title, and the text or the cell of a row."""

    title: str
    value: Callable[[Any], str | Cell]
    is_number: bool = False
    style: str = ""

    def cell(self, row: Any) -> Cell:
        """The cell of a row."""
        value = self.value(row)
        return value if isinstance(value, Cell) else Cell(text=value)


@dataclass(frozen=True)
class Group:
    """Rows of a table below a title. ``is_aside``: they were not measured here."""

    title: str
    rows: Sequence[Any]
    notes: Sequence[str] = ()
    is_aside: bool = False


@dataclass(frozen=True)
class Table:
    """Rows with the cells of the columns.

    ``label``: its name for screen readers. ``style``: CSS classes. ``is_current``: whether a row is highlighted.
    """

    columns: Sequence[Column]
    rows: Sequence[Any] = ()
    groups: Sequence[Group] = ()
    label: str = ""
    caption: str = ""
    style: str = ""
    is_current: Callable[[Any], bool] = lambda row: False

    def shown(self) -> list[Column]:
        """The columns in which some row has a value."""
        rows = [*self.rows, *(row for group in self.groups for row in group.rows)]
        return [
            column
            for place, column in enumerate(self.columns)
            if place == 0 or any(column.cell(row).text not in ("", NO_FIGURE) for row in rows)
        ]

    def parts(self) -> list[Group]:
        """All rows in groups, those without a title first."""
        return [*([Group("", self.rows)] if self.rows else []), *(group for group in self.groups if group.rows)]


def pairs(entries: Sequence[tuple[str, str]], style: str = "facts") -> Table:
    """Terms with their values, shown as a list."""
    return Table((Column("", lambda pair: pair[0]), Column("", lambda pair: pair[1])), entries, style=style)


def plain_table(titles: Sequence[str], rows: Sequence[Sequence[str | Cell]], label: str, style: str = "") -> Table:
    """A table of cells that are known already: the first column has names, the others have numbers."""
    columns = [
        Column(title, lambda row, place=place: row[place], is_number=place > 0) for place, title in enumerate(titles)
    ]
    return Table(columns, rows, label=label, style=style)


@dataclass(frozen=True)
class Chart:
    """A drawing with its data in words. ``draw`` makes HTML from the alternative text.

    ``legend``: name and note of each line. ``is_chosen``: the reader chooses the lines. At
    first ``num_drawn`` are chosen. ``has_table``: the table beside it has the same data.
    """

    caption: str
    draw: Callable[[str], str]
    data: Sequence[str]
    note: str = ""
    legend: Sequence[tuple[str, str]] = ()
    is_chosen: bool = False
    num_drawn: int = 0
    has_table: bool = False

    def alternative(self) -> str:
        """The text for those who do not see it: the caption and the data, of many rows the first and the last."""
        rows = self.data if len(self.data) <= _MOST_ALTERNATIVE_ROWS else [self.data[0], self.data[-1]]
        return f"{self.caption}. {'; '.join(rows)}."


@dataclass(frozen=True)
class Text:
    """A paragraph, or with another ``kind`` a heading, a note, a finding or prose.

    ``shades``: parts of prose, each with the depth of its background from 0 to 8. ``lead``: its beginning, in bold.
    """

    text: str = ""
    kind: str = "paragraph"
    lead: str = ""
    shades: Sequence[tuple[str, int]] = ()


@dataclass(frozen=True)
class Picture:
    """An image of a gallery: a PNG in base64, which may be missing, with its captions."""

    png: str
    alternative: str
    title: str
    value: str = ""
    note: str = ""
    is_mistake: bool = False


@dataclass(frozen=True)
class Gallery:
    """Images in rows."""

    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Box:
    """Blocks in a box: "fold" with a summary, "pair" side by side, "part" of a pair, or "stage" of the lineage."""

    kind: str
    blocks: Sequence["Block"]
    summary: str = ""
    note: str = ""
    is_open: bool = False
    style: str = ""


Block = Table | Chart | Text | Gallery | Box


@dataclass(frozen=True)
class Section:
    """A part of the report with a title. It is not rendered if it is empty."""

    name: str
    title: str
    blocks: Sequence[Block]
