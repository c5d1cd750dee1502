"""``python -m tasks Report``: the pipeline, with any task and flags of Luigi's.

The same as ``luigi --module tasks Report``, with what must happen before Luigi does: this package is imported first, so
that Ctrl-C is heard from the beginning, and a central scheduler that does not answer is told of at once.
"""

import luigi.retcodes

from pipeline.errors import PipelineError
from tasks.commands import command
from tasks.process import central, console
from tasks.storage import log_format_of


def main(argv: list[str]) -> int:
    """Run Luigi, which ends the process by itself."""
    arguments = ["--module", "tasks", *argv]
    try:
        central.require(arguments)
    except PipelineError as error:
        console.show(error, log_format=log_format_of(argv))
        return error.exit_code
    luigi.retcodes.run_with_retcodes(arguments)
    return 0


if __name__ == "__main__":
    command.run_main(main)
