"""Renderers of a report for HTML, Markdown and the terminal, of its cards, and of the page while a run trains.

Everything in a report is untrusted and escaped here. HTML relies on Jinja's autoescape, Markdown on `escaped`, and the
terminal on rich's Text without markup.
"""

import base64
import hashlib
import html
import io
import re
import sys
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table as RichTable
from rich.text import Text as RichText

from pipeline.artifacts import layout
from pipeline.problems.results import results_of
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Cell, Chart, Column, Facts, Gallery, Links, Section, Table, Text
from pipeline.report.data.reading import call_hook
from pipeline.report.report import Report, build_report
from pipeline.report.sections import PAGE_ONLY, TERMINAL, sections
from pipeline.report.sections.compare import Difference, compare_data, difference_table
from pipeline.report.sections.scoreboard import results
from pipeline.report.sections.summary import findings, title, verdict, warnings
from pipeline.runs.metrics import METRICS_NAME, EpochMetrics, read_metrics
from pipeline.runs.record import FINISHED

_TEMPLATES = Path(__file__).parent / "templates"
# Whitespace without width for rich, which breaks lines there.
_BREAK = "\x1f"
_MAX_MISTAKES, _MAX_CHART_ROWS = 5, 8
# Size categories of the Hugging Face Hub, in factors of ten from a thousand examples.
_SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "n>10M")
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
    texts = {layout.REPORT_DATA: report.to_json(), "report.md": to_markdown(report, contents)}
    texts |= {layout.REPORT_PAGE: to_html(report, contents)}
    texts |= {f"{name}-card.md": text for name, text in cards(report).items()}
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
    script = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
    return _rendered(
        "report.html.j2",
        **{"reload_seconds": 0, "findings": [], "warnings": [], "alarm": False, "compare_data": "", **head},
        sections=blocks,
        markers=list(drawings.MARKERS.values()),
        kind=lambda block: type(block).__name__,
        draw=drawings.draw,
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
    )


def sections_of_runs(run_folders: Sequence[Path], current: Sequence[str]) -> list[Section]:
    """Return the scoreboard of the finished runs and their details, see ``build_report``."""
    return list(sections(build_report(run_folders, current=current), (*TERMINAL, "runs")))


def write_live_page(
    folder: Path,
    run_folder: Path,
    earlier: Sequence[Section],
    *,
    experiment: str,
    run: str,
    epochs: int,
    started_at: str,
    refresh_seconds: int,
) -> None:
    """Write report.html into ``folder`` from the metrics of a run that trains ``epochs`` epochs.

    The page reloads itself every ``refresh_seconds``, or never if they are 0, after a failure. ``run`` is a name. The
    sections ``earlier`` follow. DamagedArtifactError: The metrics are invalid.
    """
    metrics = run_folder / METRICS_NAME
    rows = [EpochMetrics(**row) for row in read_metrics(metrics)] if metrics.exists() else []
    state = "Training is running" if refresh_seconds else "Training was not finished"
    name = fmt.joined(fmt.plain(experiment), fmt.plain(run))
    age = f"This page was written at {datetime.now(UTC):%H:%M:%S} UTC"
    if refresh_seconds:
        age = f"{age}, and again every {refresh_seconds} s. If it is a minute old, the training has ended"
    blocks: list[Block] = [Text("The first epoch is not finished yet.")]
    if rows:
        last, curves = rows[-1], SimpleNamespace(curves=rows, steps_per_epoch=None)
        # The newest epoch gives the estimate, because epoch 1 compiles.
        left = (epochs - len(rows)) * ((last.train_seconds or 0) + (last.evaluation_seconds or 0))
        age = f"The remaining epochs take about {fmt.number(left)} s. {age}" if refresh_seconds else age
        metric = f"test accuracy {fmt.percent(last.test_accuracy)}"
        metric = f"test loss {fmt.number(last.test_loss, 3)}" if last.test_accuracy is None else metric
        blocks = [drawings.curve_chart([curves], [""], data=[f"{metric} after epoch {len(rows)}"])]
    text = page(
        [Section("epochs", "Finished epochs", blocks), *earlier],
        title=f"{state} ({len(rows)}/{epochs}), {name}",
        verdict=f"{state}. Experiment {name}, {len(rows)} of {fmt.plural(epochs, 'epoch')} finished, started "
        f"at {fmt.moment(started_at)}.",
        findings=[f"{age}. To resume after the last finished epoch, run the same command again."],
        reload_seconds=refresh_seconds,
    )
    (folder / layout.REPORT_PAGE).write_text(text, encoding="utf-8", errors="replace", newline="\n")


def cards(report: Report) -> dict[str, str]:
    """Return the cards "model" and "dataset" of the first requested run that finished."""
    run = next((run for run in report.requested() if run.status == FINISHED), None)
    # Always written, to replace the card of an earlier report.
    texts = dict.fromkeys(("model", "dataset"), "No requested run has the data for this card.\n")
    if not run:
        return texts
    values = {"counts": [], "labels": [], "rows": [], "confusions": []} | (call_hook(run.problem, "card", run) or {})
    records = [fmt.plain(artifact.artifact) for artifact in report.lineage if artifact.stage == "Records"]
    size = bisect([10**power for power in range(3, 8)], sum(count for _, count in values["counts"]))
    problem = results_of(run.problem)
    # Not yet escaped.
    values |= {
        "run": run,
        "fmt": fmt,
        "problem": problem,
        "placeholder_for": fmt.dataset_name(run.requested_dataset) if run.is_placeholder else "",
        "size": _SIZES[size],
        "input_shape": " × ".join(map(fmt.number, run.input_shape or ())),
        "records": f"{layout.RECORDS}/{records[0]}" if records else "",
    }
    suffix = f"-{problem.card_templates}" if problem.card_templates else ""
    for name in ("model", "dataset") if run.evaluation else ("model",):
        texts[name] = _rendered(f"{name}-card{suffix}.md.j2", **values)
    return texts


def escaped(value: object) -> str:
    """Escape text for Markdown and its tables, so that it adds no HTML, link, image, code or column."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


def _rendered(template: str, **values: Any) -> str:
    """Render a template of the page (.html.j2) or of Markdown (.md.j2) with its values escaped."""
    return _environment(template.split(".")[-2]).get_template(template).render(values)


@cache
def _environment(kind: str) -> Environment:
    return Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=kind == "html",
        # Every expression of Markdown is escaped, except the JSON of the front matter, which tojson marks as safe.
        finalize=None if kind == "html" else lambda value: value if isinstance(value, Markup) else escaped(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def to_markdown(report: Report, contents: Sequence[Section]) -> str:
    """Render a report with these sections as Markdown, without its charts."""
    parts = ["# TensorCraft training report", f"**{escaped(verdict(report))}**"]
    parts += map(escaped, findings(report))
    for headline, text in warnings(report):
        parts.append(f"> **Warning: {escaped(headline)}.** {escaped(text)}")
    for section in (section for section in contents if section.name not in PAGE_ONLY):
        parts += [f"## {escaped(section.title)}"] if section.title else []
        parts += _markdown(section.blocks)
    return f"{_joined(parts)}\nThe page report.html has the details.\n"


def format_experiments(report: Report) -> str:
    """Render the results of each experiment and the machines as Markdown. Empty if no run has finished."""
    return _joined(_markdown(results(report)))


def _joined(parts: Iterable[str]) -> str:
    """Join the texts by blank lines, except between list items. Leave out empty texts and headings without contents."""
    text = "\n\n".join(filter(None, parts))
    for level in range(6, 1, -1):
        text = re.sub(rf"^#{{{level}}} .*\n+(?=#{{1,{level}}} |\Z)", "", f"{text}\n\n", flags=re.MULTILINE).rstrip()
    text = re.sub(r"^(- .*)\n\n(?=- )", r"\1\n", text, flags=re.MULTILINE)
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
            rows = [] if block.has_table else fmt.spread(block.rows(), _MAX_CHART_ROWS)
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
            marks = {"heading": level, "finding": "-", "prose": "-"}
            yield f"{marks.get(block.kind, '')} {lead}{text}".lstrip()
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
