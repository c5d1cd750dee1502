"""Program: what every ``python -m`` of ours does with its command line: run it, and end with an exit code.

An error written for the user is one line, in the format that the log has or, where there is no log yet, was to have.
"""

import os
import signal
import sys
from collections.abc import Callable

from tasks.process import console
from tasks.process.logs import for_the_user
from tasks.storage import log_format_of


def run(main: Callable[[list[str]], int]) -> None:
    """Run a program that takes its whole command line itself; an error written for the user ends with its own code."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has seen enough, as head has. Python would write the rest when it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except Exception as error:
        # Luigi raises some errors of its own around ours.
        known = for_the_user(error)
        if known is None:
            raise
        console.show(known, log_format=log_format_of(sys.argv[1:]))
        code = known.exit_code
    sys.exit(code)
