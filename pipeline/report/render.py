"""Renderers of a report for HTML, Markdown and the terminal.

Everything in a report is untrusted and escaped here. HTML relies on Jinja's autoescape, Markdown on `escaped`, and the
terminal on rich's Text without markup.
"""

import base64
import hashlib
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text as RichText

from pipeline.artifacts.layout import REPORT_DATA, REPORT_PAGE
from pipeline.report import cards, drawings
from pipeline.report.blocks import Block, Cell, Chart, Column, Facts, Gallery, Links, Section, Table, Text
from pipeline.report.diff import Difference, difference_table
from pipeline.report.formats import spread
from pipeline.report.report import Report
from pipeline.report.sections import PAGE_ONLY, TERMINAL, sections
from pipeline.report.sections.compare import compare_data
from pipeline.report.sections.scoreboard import results
from pipeline.report.sections.summary import findings, title, verdict, warnings
from pipeline.report.templating import TEMPLATES, escaped, render

# Markdown prefixes by kind of text. Any other kind is itself a list mark.
_MARKS = {"finding": "-", "prose": "-", "paragraph": "", "note": ""}
# Whitespace without width for rich, which breaks lines there.
_BREAK = "\x1f"
_MAX_MISTAKES, _MAX_CHART_ROWS = 5, 8
#: Width of the text if standard output is no terminal.
PIPED_COLUMNS = 120
#: Largest width of the text for a terminal.
MAX_COLUMNS = 100
#: Below this width, each row of a table with many columns becomes a list.
TABLE_COLUMNS = 80


def write_report(report: Report, folder: Path) -> None:
    """Write report.json, report.md, report.html and the cards into a new or existing folder.

    The files that sections link to are written too, see ``Links``. The same report gives the same bytes. The caller
    publishes the folder atomically.
    """
    folder.mkdir(parents=True, exist_ok=True)
    contents = [*sections(report)]
    texts = {REPORT_DATA: report.to_json(), "report.md": to_markdown(report), REPORT_PAGE: to_html(report, contents)}
    texts |= {f"{name}-card.md": text for name, text in cards.cards(report).items()}
    links = [block for section in contents for block in section.blocks if isinstance(block, Links)]
    texts |= {name: text for block in links for name, text in block.files.items()}
    for name, text in texts.items():
        # JSON may contain lone surrogates, which UTF-8 cannot encode. They become "?".
        (folder / name).write_text(text, encoding="utf-8", errors="replace", newline="\n")


def to_html(report: Report, contents: Sequence[Section]) -> str:
    """Render the page of a report with these sections."""
    return page(
        contents,
        title=title(report),
        verdict=verdict(report),
        findings=findings(report),
        warnings=warnings(report),
        # The first warning is an alarm.
        alarm=any(run.is_placeholder for run in report.requested()) or bool(report.gate and report.gate.failures),
        compare_data=Markup(compare_data(report)),
    )


def page(blocks: Sequence[Section], **head: Any) -> str:
    """Render sections below a head, see report.html.j2. The security policy allows only the page's own script."""
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    return render(
        "report.html.j2",
        **{"reload_seconds": 0, "findings": [], "warnings": [], "alarm": False, "compare_data": "", **head},
        sections=blocks,
        markers=list(drawings.MARKERS.values()),
        kind=lambda block: type(block).__name__,
        draw=drawings.draw,
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
    )


def to_markdown(report: Report) -> str:
    """Render the report as Markdown, without its charts."""
    parts = ["# TensorCraft training report", f"**{escaped(verdict(report))}**"]
    parts += map(escaped, findings(report))
    for headline, text in warnings(report):
        parts.append(f"> **Warning: {escaped(headline)}.** {escaped(text)}")
    for section in sections(report, without=PAGE_ONLY):
        parts += [f"## {escaped(section.title)}"] if section.title else []
        parts += _markdown(section.blocks)
    return _joined([*_without_empty_headings(parts), "The page report.html has the details."])


def format_experiments(report: Report) -> str:
    """Render the results of each experiment and the machines as Markdown. Empty if no run has finished."""
    return _joined(_markdown(results(report)))


def _without_empty_headings(parts: Iterable[str]) -> list[str]:
    """Return the texts that are not empty, without headings that have no contents."""
    kept: list[str] = []
    for part in reversed([*filter(None, parts)]):
        level, next_level = (len(text) - len(text.lstrip("#")) for text in (part, kept[-1] if kept else "#"))
        if not 0 < next_level <= level:
            kept.append(part)
    return kept[::-1]


def _joined(parts: Iterable[str]) -> str:
    """Join the texts that are not empty by blank lines, except between list items."""
    text = ""
    for part in filter(None, parts):
        is_next_item = part.startswith("- ") and text.rpartition("\n\n")[2].startswith("- ")
        text += ("\n" if is_next_item else "\n\n" if text else "") + part
    return text and f"{text}\n"


def _markdown(blocks: Iterable[Block], level: str = "###") -> Iterator[str]:
    for block in filter(None, blocks):
        if isinstance(block, Table):
            yield from (escaped(block.caption), _markdown_table(block))
        elif isinstance(block, Facts):
            facts = [f"{escaped(term)}: {escaped(value)}" for term, value in block.pairs]
            yield from [" · ".join(facts)] if block.style == "tiles" else (f"- {fact}" for fact in facts)
        elif isinstance(block, Links):
            yield "- " + ", ".join(f"[{escaped(name)}]({address})" for name, address in block.pairs)
        elif isinstance(block, Chart):
            # The note describes the drawing.
            rows = [] if block.has_table else spread(block.rows(), _MAX_CHART_ROWS)
            yield from (f"- {escaped(row)}" for row in (["; ".join(rows)] if block.shares else rows))
        elif isinstance(block, Gallery):
            mistakes = [picture for picture in block.pictures if picture.is_mistake][:_MAX_MISTAKES]
            lines = [f"{one.alternative}. {one.text}" if one.text else one.alternative for one in mistakes]
            yield from (f"- {escaped(line)}" for line in ([block.title] if block.title else lines))
        elif isinstance(block, Text) and block.kind == "command":
            yield f"```sh\n{block.text}\n```"
        elif isinstance(block, Text):
            text = escaped("".join(piece for piece, _ in block.shades) or block.text)
            lead = f"{escaped(block.lead)}: " if block.lead else ""
            mark = level if block.kind == "heading" else _MARKS.get(block.kind, block.kind)
            yield f"{mark} {lead}{text}".lstrip()
        # Folded details are on the page.
        elif block.kind != "fold" or block.is_open:
            yield f"{level} {escaped(block.summary)}" if block.summary else ""
            yield from _markdown(block.blocks, f"{level}#" if block.summary else level)


def _markdown_table(table: Table) -> str:
    columns, rows = table.visible()
    lines = [[escaped(column.title) for column in columns]]
    lines.append(["--:" if column.is_number else "---" for column in columns])
    lines += [[*map(_markdown_cell, row)] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown_cell(cell: Cell) -> str:
    tag = f"**{escaped(cell.tag)}:** " if cell.tag else ""
    notes = ", ".join(filter(None, cell.notes))
    alarms = "".join(f" (**{escaped(alarm)}**)" for alarm in cell.alarms)
    return f"{tag}{escaped(cell.text)}{f' ({escaped(notes)})' if notes else ''}{alarms}"


def format_table(report: Report, *, width: int | None = None) -> str:
    """The scoreboard for a terminal of this width, by default that of standard output. Without color codes."""
    width = min(width or terminal_columns(), MAX_COLUMNS)
    parts: list[RenderableType] = [""]
    # The error of the gate follows, with the same failures.
    parts += [f"WARNING {headline}. {explanation}" for headline, explanation in warnings(report, has_failures=False)]
    parts += [verdict(report), *findings(report)]
    for section in sections(report, TERMINAL):
        # Without a request, no experiment is more important than another, and none is folded.
        opened = section.blocks
        if not report.current:
            opened = [inner for block in section.blocks for inner in getattr(block, "blocks", [block])]
        blocks = [block for block in opened if block and isinstance(block, Table | Text)]
        parts += ["", section.title] if blocks else []
        for block in blocks:
            parts += _terminal(block, width) if isinstance(block, Table) else [block.text]
    return _as_text(parts, width)


def format_differences(differences: list[Difference], names: tuple[str, str], *, width: int | None = None) -> str:
    """Format the differences of two runs with these names for a terminal, see `format_table`."""
    table = difference_table(differences, names)
    return format_rows(table, width=width) if table else "The two runs do not differ.\n"


def format_rows(table: Table, *, width: int | None = None) -> str:
    """Format a table for a terminal, see `format_table`."""
    width = width or terminal_columns()
    return _as_text(_terminal(table, width), width)


def terminal_columns() -> int:
    """Return the width of the terminal that shows standard output, or else PIPED_COLUMNS."""
    return Console(file=sys.stdout).width if sys.stdout.isatty() else PIPED_COLUMNS


def _as_text(parts: Iterable[RenderableType], width: int) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, force_terminal=False, force_jupyter=False)
    for part in parts:
        console.print(RichText(part) if isinstance(part, str) else part)
    return "\n".join(line.rstrip() for line in file.getvalue().replace(_BREAK, "").splitlines()) + "\n"


def _terminal(table: Table, width: int) -> Iterator[RenderableType]:
    columns, rows = table.visible()
    if table.caption:
        yield table.caption
    yield (_list if width < TABLE_COLUMNS and len(columns) > 3 else _grid)(columns, rows)
    if any(cell.tag for row in rows for cell in row):
        yield "* requested run"


def _grid(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RichTable:
    # The box leaves one space between columns. The scoreboard would not fit with more.
    grid = RichTable(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for index, column in enumerate(columns):
        is_number = column.is_number and index > 0
        title = RichText(column.title.replace(" ", "\n").replace(",\n", ", ") if column.is_number else column.title)
        grid.add_column(title, justify="right" if is_number else "left", overflow="fold", no_wrap=is_number)
    for row in rows:
        # Numbers have no notes in a grid.
        texts = [cell.text if column.is_number else _text(cell) for column, cell in zip(columns, row, strict=True)]
        texts = [text.replace(" / ", "\n").replace(" ±", "\n±").replace("_", f"_{_BREAK}") for text in texts]
        grid.add_row(*map(RichText, texts))
    return grid


def _text(cell: Cell) -> str:
    """Return a cell with its notes, with a mark before the name of a requested run."""
    return "\n".join([f"{'*' * bool(cell.tag)}{cell.text}", *cell.lines()[bool(cell.text) :]])


def _list(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RichTable:
    """Return a line per cell, with the title of its column."""
    grid = RichTable.grid("", "", padding=(0, 2, 0, 0))
    for row in rows:
        for column, text in zip(columns, map(_text, row), strict=True):
            grid.add_row(RichText(column.title, overflow="fold"), RichText(text, overflow="fold"))
        grid.add_row()
    return grid
