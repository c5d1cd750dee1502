"""Renderers: a report as HTML, as Markdown and for the terminal.

Everything in a report is untrusted. It is escaped here: in HTML by Jinja's autoescape, in Markdown by `_escaped`. For
the terminal, rich gets Text, never markup.
"""

import base64
import hashlib
import html
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text as RichText

from pipeline.report import cards
from pipeline.report.blocks import LISTS, Block, Box, Cell, Chart, Column, Gallery, Table, Text
from pipeline.report.diff import Difference, difference_table
from pipeline.report.formats import sentence
from pipeline.report.report import Report
from pipeline.report.results import results
from pipeline.report.sections import TERMINAL, sections
from pipeline.report.sections.summary import change_sentences, is_alarming, verdict, warnings

_TEMPLATES = Path(__file__).parent / "templates"
_MARKERS = ("●", "■", "▲", "◆", "▼", "✚")
_MAX_MISTAKES = 10
#: Columns of a pipe, which no window limits.
PIPED_COLUMNS = 120
#: In a narrower terminal, each row of a table with many columns becomes a list.
TABLE_COLUMNS = 100
# rich prints nothing at all in one column.
_FEWEST_COLUMNS = 20


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, report.md, report.html, model-card.md and dataset-card.md. The folder is created.

    The same report gives the same bytes. The caller publishes the folder atomically.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"report.json": report.to_json(), "report.md": to_markdown(report), "report.html": to_html(report)}
    texts |= {f"{name}-card.md": text for name, text in cards.cards(report, render_text).items()}
    for name, text in texts.items():
        # A lone surrogate, possible in JSON, has no UTF-8: better a "?" than no report.
        (folder / name).write_text(text, encoding="utf-8", errors="replace", newline="\n")


def to_html(report: Report) -> str:
    """The page. Its security policy runs no script but its own, by digest."""
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    return (
        _environment(for_html=True)
        .get_template("report.html.j2")
        .render(
            verdict=verdict(report),
            changes=change_sentences(report),
            warnings=warnings(report),
            alarm=is_alarming(report),
            sections=list(sections(report)),
            markers=_MARKERS,
            lists=LISTS,
            kind=lambda block: type(block).__name__,
            draw=lambda chart: Markup(chart.draw(chart.alternative())),
            script=Markup(script),
            script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        )
    )


def render_text(template: str, facts: dict) -> str:
    """A Markdown template with its values escaped."""
    return _environment(for_html=False).get_template(template).render(facts)


@cache
def _environment(*, for_html: bool) -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=for_html,
        # No expression of a template can forget it.
        finalize=None if for_html else _escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def to_markdown(report: Report) -> str:
    """The report as Markdown, without its charts."""
    parts = [
        "# TensorCraft training report",
        f"**{_escaped(verdict(report))}**",
        *map(_escaped, change_sentences(report)),
    ]
    parts += [f"> **Warning: {_escaped(headline)}.** {_escaped(text)}" for headline, text in warnings(report)]
    for section in sections(report):
        parts += [f"## {_escaped(section.title)}"] if section.title else []
        parts += _markdown(section.blocks)
    return "\n\n".join(_with_whole_lists(parts)) + "\n"


def format_experiments(report: Report) -> str:
    """The table of results of a README, as Markdown. Empty if no run has finished."""
    parts = list(_with_whole_lists([*_markdown(results(report))]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _escaped(value: object) -> str:
    """Text that stays text in Markdown and its tables: no HTML, link, image, code or new column."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


def _markdown(blocks: Sequence[Block], level: str = "###") -> Iterator[str]:
    for block in blocks:
        if isinstance(block, Table):
            yield from [_escaped(block.caption), _markdown_table(block)] if block.parts() else []
        elif isinstance(block, Chart):
            yield _escaped(block.note)
            # A table beside it may have the same data.
            listed = [] if block.has_table else [f"{name}: {note}" if note else name for name, note in block.legend]
            data = [] if block.has_table else block.data
            yield "\n".join(f"- {_escaped(line)}" for line in (listed if len(listed) > len(data) else data))
        elif isinstance(block, Gallery):
            mistakes = [picture for picture in block.pictures if picture.is_mistake][:_MAX_MISTAKES]
            yield "\n".join(f"- {_escaped(one.alternative)} ({_escaped(one.value)})" for one in mistakes)
        elif isinstance(block, Text):
            yield _markdown_text(block, level)
        elif block.kind == "dag":
            names = [(stage.summary, artifact.summary) for stage in block.blocks for artifact in stage.blocks]
            yield "\n".join(f"- {_escaped(stage)}: {_escaped(name)}" for stage, name in names)
        else:
            yield from [f"{level} {_escaped(block.summary)}"] if block.summary else []
            yield from _markdown(block.blocks, f"{level}#" if block.summary else level)


def _markdown_text(block: Text, level: str) -> str:
    text = _escaped("".join(part for part, _ in block.shades) or block.text)
    lead = f"{_escaped(block.lead)}: " if block.lead else ""
    mark = {"heading": f"{level} ", "finding": "- ", "prose": "- ", "paragraph": "", "note": ""}.get(block.kind)
    return f"{block.kind + ' ' if mark is None else mark}{lead}{text}"


def _with_whole_lists(parts: Sequence[str]) -> Iterator[str]:
    """The parts that are not empty. Items of one list become one part."""
    item = re.compile(r"(- |\d+\. )")
    listed: list[str] = []
    for part in filter(None, parts):
        if listed and not item.match(part):
            yield "\n".join(listed)
            listed = []
        if item.match(part):
            listed.append(part)
        else:
            yield part
    if listed:
        yield "\n".join(listed)


def _markdown_table(table: Table) -> str:
    if table.style in LISTS:
        bold = "**" if table.style == "definitions" else ""
        return "\n".join(f"- {bold}{_escaped(term)}{bold}: {_escaped(value)}" for term, value in table.rows)
    columns = table.shown()
    lines = [
        [_escaped(column.title) for column in columns],
        ["--:" if column.is_number else "---" for column in columns],
    ]
    for group in table.parts():
        if group.title:
            title = " ".join([sentence(group.title), *group.notes]) if group.notes else group.title
            lines.append([f"**{_escaped(title)}**", *[""] * (len(columns) - 1)])
        for row in group.rows:
            first, *others = [_markdown_cell(column.cell(row)) for column in columns]
            lines.append([f"*{first}*" if group.is_aside else first, *others])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown_cell(cell: Cell) -> str:
    tags = "".join(f"**{_escaped(tag)}:** " for tag in cell.tags)
    notes = f" ({_escaped(', '.join(cell.notes))})" if cell.notes else ""
    return f"{tags}{_escaped(cell.text)}{notes}{''.join(f' (**{_escaped(alarm)}**)' for alarm in cell.alarms)}"


def format_table(report: Report, *, width: int | None = None) -> str:
    """The scoreboard for a terminal of this width, by default that of standard output. Without color codes."""
    width = width or terminal_columns()
    parts: list[RenderableType] = [
        *(RichText(f"! {headline}. {explanation}") for headline, explanation in warnings(report)),
        RichText(verdict(report)),
        *map(RichText, change_sentences(report)),
    ]
    for section in sections(report, TERMINAL):
        blocks = [block for block in section.blocks if not isinstance(block, Box)]
        # Without a request, no experiment is more important than another.
        if not report.current:
            blocks = [one for block in section.blocks for one in (block.blocks if isinstance(block, Box) else [block])]
        parts += ["", RichText(section.title)] if blocks else []
        parts += [part for block in blocks for part in _terminal(block, width)]
    return _as_text(parts, width)


def format_differences(differences: list[Difference], names: tuple[str, str], *, width: int | None = None) -> str:
    """The differences of two runs of these names for a terminal, see `format_table`."""
    if not differences:
        return "The two runs do not differ.\n"
    width = width or terminal_columns()
    return _as_text(_terminal(difference_table(differences, names), width), width)


def terminal_columns() -> int:
    """Columns of the terminal that shows standard output, else PIPED_COLUMNS."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else PIPED_COLUMNS


def _as_text(parts: Iterable[RenderableType], width: int) -> str:
    file = io.StringIO()
    console = Console(
        file=file, width=max(width, _FEWEST_COLUMNS), color_system=None, force_terminal=False, force_jupyter=False
    )
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _terminal(block: Block, width: int) -> Iterator[RenderableType]:
    if isinstance(block, Text):
        yield RichText(block.text)
    if not isinstance(block, Table):
        return
    columns = block.shown()
    if width < TABLE_COLUMNS and len(columns) > 3:
        yield from _as_lists(block, columns)
    else:
        yield _as_table(block, columns, fits=width >= PIPED_COLUMNS)
    if "scoreboard" in block.style:
        aside = "   † published elsewhere, not measured here" if any(one.is_aside for one in block.parts()) else ""
        yield RichText(f"* requested{aside}   – no figure")


def _as_table(table: Table, columns: Sequence[Column], *, fits: bool) -> RichTable:
    # The box puts one space between columns. With more the scoreboard would not fit.
    drawn = RichTable(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for place, column in enumerate(columns):
        cells = [column.cell(row) for group in table.parts() for row in group.rows]
        # Numbers are not folded if there is room.
        words = [len(word) for cell in cells for line in cell.lines() for word in ([line] if column.is_number else [])]
        drawn.add_column(
            RichText(column.title),
            justify="right" if column.is_number and place else "left",
            overflow="fold",
            min_width=min(max(words, default=1), 8) if fits else None,
        )
    for group in table.parts():
        drawn.add_section()
        if group.title and not group.is_aside:
            drawn.add_row(RichText(group.title))
        for row in group.rows:
            first, *others = ["\n".join(column.cell(row).lines()) for column in columns]
            cells = f"{_row_mark(table, group.is_aside, row)}{first}".replace(" / ", "\n"), *others
            drawn.add_row(*(RichText(text.replace(" ±", "\n±")) for text in cells))
    return drawn


def _as_lists(table: Table, columns: Sequence[Column]) -> Iterator[RenderableType]:
    for group in table.parts():
        if group.title and not group.is_aside:
            yield RichText(group.title)
        for row in group.rows:
            first, *others = ["\n".join(column.cell(row).lines()) for column in columns]
            # A number says nothing without its title.
            title = f"{columns[0].title} " if columns[0].is_number else ""
            yield RichText(f"{_row_mark(table, group.is_aside, row)}{title}{first}".replace("\n", ", "))
            grid = RichTable.grid(padding=(0, 2, 0, 0))
            grid.add_column(overflow="fold")
            grid.add_column(overflow="fold")
            for column, text in zip(columns[1:], others, strict=True):
                grid.add_row(RichText(column.title), RichText(text))
            yield Padding(grid, (0, 0, 0, 2))


def _row_mark(table: Table, is_aside: bool, row: object) -> str:
    return "† " if is_aside else "* " if table.is_current(row) else ""
