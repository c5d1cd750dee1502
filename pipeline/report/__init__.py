"""Report: runs to a scoreboard, as JSON, Markdown, HTML and a table for the terminal.

Last in the data's way: source → records → shards → input stream → training → metrics → **report**.

    reading.py      a run's folder → its record and metrics, checked field by field
    scenarios.py    runs that differ in their seed alone → one row, mean and standard deviation
    comparison.py   those rows → which may be compared, and the speed-up of those that may
    predictions.py  a run's evaluation and its pictures, checked
    lineage.py      a run's folder → the artefacts it was made from
    history.py      the log of every run ever reported → groups of comparable runs over time
    changes.py      the newest runs of a group against those before, and whether a change is more than noise
    gate.py         the changes and what the settings demand → passed or not
    batch_sizes.py  those rows → epoch and step time by batch and device
    scoreboard.py   all of the above → one plain dict, the content of report.json
    formats.py wording.py rows.py details.py    that dict → the words and cells every rendering shares
    drawing.py curves.py                        its series → inline SVG
    bars.py         a run's time, calibration and labels → inline SVG
    page.py         all of it → what the templates place
    cards.py        a run → model card and dataset card
    diff.py         two runs → what differs between them
    render.py       all of it → files in a folder
    terminal.py     its rows → text that fits the terminal

Importing this package imports matplotlib, jinja2, pillow and rich: do so inside a task's `run()`.
"""

from pipeline.report.gate import Gate
from pipeline.report.history import HISTORY_NAME, append_history, entries_of, read_history
from pipeline.report.reading import read_run
from pipeline.report.render import write_report
from pipeline.report.scoreboard import PUBLISHED, build_report
from pipeline.report.terminal import format_table

__all__ = [
    "HISTORY_NAME",
    "PUBLISHED",
    "Gate",
    "append_history",
    "build_report",
    "entries_of",
    "format_table",
    "read_history",
    "read_run",
    "write_report",
]
