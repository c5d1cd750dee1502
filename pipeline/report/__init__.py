"""Report: finished runs to a scoreboard, as JSON, Markdown, HTML and a table for the terminal.

Last in the data's way: source → records → shards → input stream → training → metrics → **report**.

    scoreboard.py   run folders → one plain dict, the content of report.json
    wording.py      that dict → the words and formatted figures every rendering shares
    curves.py       per-epoch accuracy and loss → one inline SVG
    render.py       all of it → files in a folder, or a string for a terminal

Importing this package imports matplotlib, jinja2 and rich: do so inside a task's `run()`.
"""

from pipeline.report.render import format_table, write_report
from pipeline.report.scoreboard import PUBLISHED, build_report, read_run

__all__ = ["PUBLISHED", "build_report", "format_table", "read_run", "write_report"]
