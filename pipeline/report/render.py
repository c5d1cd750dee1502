"""Rendering: the report's data to report.json, report.md and report.html, and to a table for the terminal.

What a run says about itself is untrusted and escaped where it is written: in HTML by jinja2's autoescape, in
Markdown by the environment's `finalize`, which no expression of a template can forget; rich gets Text, never
markup.
"""

import html
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pipeline.report import rows, wording
from pipeline.report.curves import MARKERS, MAX_RUNS, draw_curves
from pipeline.report.formats import spread

_TEMPLATES = Path(__file__).parent / "templates"
_TERMINAL_COLUMNS = 120
# Heading → the columns below which its words would be broken.
_TEXT_COLUMNS = {
    "": 1,
    "device:\nrequested →\neffective": 11,
    "device\nverified": 8,
    "data": 9,
    "data\nverified": 8,
    "model\nrecipe": 12,
    "precision": 9,
}


def write_report(report: Mapping[str, Any], folder: Path) -> None:
    """Writes report.json, report.md and report.html into `folder`, making it where it is missing.

    The same report gives the same bytes. Writes are plain: publishing them whole is the caller's.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = _page(report)
    _write(folder / "report.json", _json(report))
    _write(folder / "report.md", _render("report.md.j2", facts))
    _write(folder / "report.html", _render("report.html.j2", facts))


def format_table(report: Mapping[str, Any], *, width: int | None = None) -> str:
    """The scoreboard for a terminal, without colour codes.

    Args:
        report: As `build_report` gives it.
        width: Columns to fit; 120 by default.
    """
    console = Console(
        file=io.StringIO(),
        width=width or _TERMINAL_COLUMNS,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
    )
    for headline, explanation in wording.warnings(wording.current_run(report)):
        console.print(Text(f"! {headline}. {explanation}"))
    console.print(Text(wording.verdict(report)))
    console.print(_table(report, console.width))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _table(report: Mapping[str, Any], width: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    wide_enough = width >= _TERMINAL_COLUMNS
    for heading, columns in _TEXT_COLUMNS.items():
        table.add_column(Text(heading), min_width=columns if wide_enough else None, overflow="fold")
    # Folded where there is no room: a figure cut short would be a wrong one.
    for heading in ("batch", "epochs", "seconds", "images/s", "val.\naccuracy"):
        table.add_column(Text(heading), justify="right", overflow="fold")
    for run in report["runs"]:
        table.add_row(*map(Text, _cells(rows.run_row(run, report["current"]))))
    table.add_section()
    for row in report["published"]:
        table.add_row(*map(Text, _cells(rows.published_row(row))))
    table.caption = Text("* this run   † published elsewhere, never measured here   – no figure")
    table.caption_justify = "left"
    return table


def _cells(row: rows.Row) -> tuple[str, ...]:
    return (
        "*" if row.current else "†" if row.published else "",
        f"{row.requested_device} → {row.effective_device}",
        row.device_verified,
        f"{row.dataset}, {row.warning}" if row.warning else row.dataset,
        row.dataset_verified,
        row.label.replace(" / ", "\n"),
        row.precision,
        row.global_batch_size,
        row.epochs,
        row.train_seconds,
        row.examples_per_second,
        row.val_accuracy,
    )


def _page(report: Mapping[str, Any]) -> dict[str, Any]:
    """What the templates place; all of it but the drawing still to be escaped."""
    run, drawn = wording.current_run(report), _drawn(report)
    return {
        "verdict": wording.verdict(report),
        "warnings": wording.warnings(run),
        "definitions": wording.DEFINITIONS,
        "rows": [rows.run_row(entry, report["current"]) for entry in report["runs"]],
        "published": [rows.published_row(row) for row in report["published"]],
        "published_source": report["published"][0]["source"],
        **_curves_part(report, drawn),
        "run": run and _run_part(run),
    }


def _run_part(run: Mapping[str, Any]) -> dict[str, Any]:
    shown = spread(run["curves"])
    return {
        "row": rows.run_row(run, None),
        "tiles": rows.tiles(run),
        "receipt": rows.receipt(run),
        "circumstances": rows.circumstances(run),
        "epoch_headings": rows.EPOCH_HEADINGS,
        "epochs": rows.epoch_rows(shown),
        "epochs_left_out": len(run["curves"]) - len(shown),
    }


def _curves_part(report: Mapping[str, Any], drawn: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = [wording.run_name(run, report["current"]) for run in drawn]
    finals = [wording.final_figures(run) for run in drawn]
    ends = "; ".join(f"{name}: {final}" for name, final in zip(names, finals, strict=True))
    alternative = f"Accuracy and loss by epoch, training and validation. At the end, {ends}."
    return {
        "drawn": [
            {"name": name, "final": final, "marker": marker}
            for name, final, (_, marker) in zip(names, finals, MARKERS, strict=False)
        ],
        "drawn_note": wording.drawn_note(report, len(drawn)),
        "curves": Markup(draw_curves(drawn, alternative_text=alternative)) if drawn else "",
    }


def _drawn(report: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    newest = list(report["runs"][:MAX_RUNS])
    run = wording.current_run(report)
    # The run the report is about is drawn even where newer ones would crowd it out.
    return newest if run is None or run in newest else [*newest[:-1], run]


def _render(template: str, facts: Mapping[str, Any]) -> str:
    for_html = template.endswith(".html.j2")
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=for_html,
        finalize=None if for_html else _for_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(facts)


def _for_markdown(value: Any) -> str:
    """Text that stays text in Markdown and its tables: no HTML, link, image, code or new column."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


def _json(report: Mapping[str, Any]) -> str:
    return json.dumps(_finite(report), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same data with null for every figure that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, text: str) -> None:
    # A lone surrogate, possible in JSON, has no UTF-8: better a "?" than no report.
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
