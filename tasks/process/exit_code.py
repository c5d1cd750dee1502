"""Exit code: Luigi ends with one code for all failures; an error of ours that was logged brings its own."""

import logging
import multiprocessing

import luigi.retcodes

from tasks.process.logs import for_the_user


class ExitCode(logging.Handler):
    """Reads the log, and gives Luigi the exit code of an error of ours."""

    def __init__(self) -> None:
        super().__init__()
        # Stages may run in processes that Luigi forks, of which the first learns no more than that they failed.
        self.shared = multiprocessing.Value("i", 0)
        # The very instance Luigi reads when it is done: it keeps one for equal parameters.
        codes = luigi.retcodes.retcode()
        codes.task_failed = _SharedCode(codes.task_failed, self.shared)

    def emit(self, record: logging.LogRecord) -> None:
        """Take the exit code of the error that the record is of."""
        error = for_the_user(record.exc_info[1]) if record.exc_info else None
        if error is not None:
            self.shared.value = luigi.retcodes.retcode().unhandled_exception = error.exit_code


class _SharedCode(int):
    """An exit code that is asked for only when Luigi weighs it against the others, by multiplying it with 0 or 1."""

    def __new__(cls, otherwise: int, shared: object) -> "_SharedCode":
        code = super().__new__(cls, otherwise)
        code.shared = shared
        return code

    def __mul__(self, other: int) -> int:
        return (self.shared.value or int(self)) * other
