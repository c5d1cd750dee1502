"""Program: what every ``python -m`` of ours does with its command line: run it, and end with an exit code.

An error written for the user is one line, in the format that the log has or, where there is no log yet, was to have.
"""

import sys
from collections.abc import Callable

from pipeline.errors import PipelineError
from tasks.process import console
from tasks.storage import log_format_of


def run(main: Callable[[list[str]], int]) -> None:
    """Run a program that takes its whole command line itself; an error written for the user ends with its own code."""
    try:
        sys.exit(main(sys.argv[1:]))
    except PipelineError as error:
        console.show(error, log_format=log_format_of(sys.argv[1:]))
        sys.exit(error.exit_code)
