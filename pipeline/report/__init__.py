"""Report of runs as JSON, Markdown, HTML and a table for the terminal.

Imports matplotlib, jinja2, pillow and rich. Import it inside a task's `run()`.
"""

from pipeline.report.data.gate import Gate
from pipeline.report.data.history import HISTORY_NAME, append_history, entries_of, read_history
from pipeline.report.data.published import read_published
from pipeline.report.data.reading import read_run
from pipeline.report.render import format_differences, format_experiments, format_table, write_report
from pipeline.report.report import build_report
from pipeline.report.sections.compare import compare_runs
from pipeline.runs.search import read_searches
