"""Report: runs to a scoreboard, as JSON, Markdown, HTML and a table for the terminal.

Last in the data's way: source → records → shards → input stream → training → metrics → **report**.

    facts/        what is known: runs read and checked, compared, followed over time; nothing is said of it yet
    wording/      what is said of it: figures as text, sentences, rows, the terminal's tables, the cards
    drawings/     its series as inline SVG
    content.py    the facts, with the words that report.json holds
    page.py       all of it → what the templates place
    render.py     that → report.json, report.md, report.html and the cards, from templates/

page and render import wording and drawings, which import facts, never back; neither of the two imports the other.

Importing this package imports matplotlib, jinja2, pillow and rich: do so inside a task's `run()`.
"""

from pipeline.report.content import build_report
from pipeline.report.facts.diff import compare_runs
from pipeline.report.facts.gate import Gate
from pipeline.report.facts.history import HISTORY_NAME, append_history, entries_of, read_history
from pipeline.report.facts.published import read_published
from pipeline.report.facts.reading import read_run
from pipeline.report.render import write_report
from pipeline.report.wording.differences import format_differences
from pipeline.report.wording.experiments_table import format_experiments
from pipeline.report.wording.scoreboard_table import format_table

__all__ = [
    "HISTORY_NAME",
    "Gate",
    "append_history",
    "build_report",
    "compare_runs",
    "entries_of",
    "format_differences",
    "format_experiments",
    "format_table",
    "read_history",
    "read_published",
    "read_run",
    "write_report",
]
