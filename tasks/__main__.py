"""``python -m tasks Report``: the pipeline, with any task and flags of Luigi's.

The same as ``luigi --module tasks Report``, with what must happen before Luigi does: this package is imported first, so
that Ctrl-C is heard from the beginning, and a central scheduler that does not answer is reported at once.
"""

import luigi.retcodes

from tasks import program, sharing
from tasks.process import central, command_line


def main(argv: list[str]) -> int:
    """Run Luigi, which ends the process by itself."""
    arguments = ["--module", "tasks", *argv]
    central.require(arguments)
    try:
        luigi.retcodes.run_with_retcodes(arguments)
    except SystemExit as ended:
        if ended.code == 0:
            with command_line.in_force(arguments):
                sharing.push_pending()
        raise
    return 0


if __name__ == "__main__":
    program.run(main)
