"""``python -m tasks Report``: the pipeline, with any task and flags of Luigi's.

The same as ``luigi --module tasks Report``, with what must happen before Luigi does: this package is imported first, so
that Ctrl-C is heard from the beginning, and a central scheduler that does not answer is reported at once.
"""

import luigi.configuration
import luigi.retcodes

from tasks import program, remote_cache
from tasks.process import central, command_line
from tasks.train import Train


def main(argv: list[str]) -> int:
    """Run Luigi, which ends the process by itself."""
    arguments = ["--module", "tasks", *argv]
    if argv[:1] in (["Report"], ["Train"], ["Export"]) and follow(arguments):
        return 0
    central.require(arguments)
    try:
        luigi.retcodes.run_with_retcodes(arguments)
    except SystemExit as ended:
        if ended.code == 0:
            with command_line.in_force(arguments):
                remote_cache.put_pending()
        raise
    return 0


def follow(arguments: list[str]) -> bool:
    """Train with process 0 if the settings say that this is another process of several; whether it is."""
    is_asked_for = any("processes" in word for word in arguments)
    if not is_asked_for and luigi.configuration.get_config().get("Train", "processes", "1") == "1":
        return False
    with command_line.in_force(arguments):
        train = Train()
        if not train.membership.is_chief:
            train.follow()
        return not train.membership.is_chief


if __name__ == "__main__":
    program.run(main)
