"""A progress line at a terminal, below the log lines. Both use one console, or each would write into the other."""

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
    """Writes log lines to stderr, and keeps the progress line below them."""

    def __init__(self) -> None:
        super().__init__()
        #: The name of the present run of a sweep.
        self.run = ""
        self._line: Progress | None = None
        self._console: Console | None = None

    def show_progress(self) -> None:
        """Show progress from now on, if stderr is a terminal."""
        if self._console is None and sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False)
            progress.listen(self._show)

    def format(self, record: logging.LogRecord) -> str:
        """The record as the formatter writes it, with the run."""
        record.run = self.run if isinstance(self.formatter, JsonLines) else self._named("")
        return super().format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record above the progress line. An error ends the line."""
        if record.levelno >= logging.ERROR:
            self._end()
        if self._line is None:
            super().emit(record)
        else:
            from rich.text import Text

            self._console.print(Text(self.format(record)), soft_wrap=True)

    def _named(self, text: str) -> str:
        return f"{self.run}: {text}" if self.run else text

    def _show(self, what: str, done: int, total: int, unit: str) -> None:
        if self._line is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            rate = TextColumn("{task.fields[rate]}")
            columns = (TextColumn("{task.description}"), BarColumn(), rate, TimeRemainingColumn())
            self._line = Progress(*columns, console=self._console, transient=True)
            self._line.add_task("", total=total, rate="")
            self._line.start()
        (task,) = self._line.tasks
        speed = task.finished_speed or task.speed
        rate = f"{speed:,.0f} {unit}/s" if speed else ""
        self._line.update(task.id, description=self._named(what), completed=done, total=total, rate=rate)
        if done >= total:
            self._end()

    def _end(self) -> None:
        if self._line is not None:
            self._line.stop()
            self._line = None
