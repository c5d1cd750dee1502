"""One live line at a terminal: what is being done, how far it is, how fast and the time left.

Only where stderr is a terminal. Log lines are printed above it: both must go through the same console, or one would
write into the other.
"""

import logging
import sys
from typing import TYPE_CHECKING

from pipeline import progress
from tasks.process.logs import JsonLines

# Most starts have no terminal and need not spend the time of these imports.
if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


class LiveHandler(logging.StreamHandler):
    """Writes log lines to stderr, and keeps the live line below them."""

    def __init__(self) -> None:
        super().__init__()
        #: The run of a sweep that is at work, empty where there is none.
        self.run = ""
        self._line: Progress | None = None
        self._console: Console | None = None

    def show_progress(self) -> None:
        """Keep a live line from now on, if there is a terminal to show it on."""
        if self._console is None and sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
            progress.listen(self._show)

    def format(self, record: logging.LogRecord) -> str:
        """The record as the formatter writes it, which knows of the run."""
        record.run = self.run if isinstance(self.formatter, JsonLines) or not self.run else f"{self.run}: "
        return super().format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, above the live line where there is one; an error is the end of what it reported."""
        if record.levelno >= logging.ERROR:
            self._end()
        if self._line is None:
            super().emit(record)
        else:
            from rich.text import Text

            self._console.print(Text(self.format(record)), soft_wrap=True)

    def _show(self, what: str, done: int, total: int, unit: str) -> None:
        what = f"{self.run}: {what}" if self.run else what
        if self._line is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            rate = TextColumn("{task.fields[rate]}")
            columns = (TextColumn("{task.description}"), BarColumn(), rate, TimeRemainingColumn())
            # What is done leaves no trace: the log says how it went.
            self._line = Progress(*columns, console=self._console, transient=True)
            self._task = self._line.add_task(what, total=total, rate="")
            self._line.start()
        (task,) = self._line.tasks
        speed = task.finished_speed or task.speed
        rate = f"{speed:,.0f} {unit}/s" if speed else ""
        self._line.update(self._task, description=what, completed=done, total=total, rate=rate)
        if done >= total:
            self._end()

    def _end(self) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None
