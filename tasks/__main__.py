"""The command line ``python -m tasks <command>``, which is installed as ``tensorcraft <command>``.

The flags that follow are settings, such as ``--Train-epochs 1``, or flags of the command. A Luigi task in place of the
command runs that task with Luigi's own flags, as in ``python -m tasks Report --workers 2``.
"""

import os
import signal
import sys
from collections.abc import Sequence

from luigi.configuration import get_config

from pipeline.errors import SettingsError, closest
from tasks.commands import COMMANDS, Parser, summary
from tasks.process import console
from tasks.settings import unreadable_value, words_and_flags


def main() -> None:
    """Run the command of ``sys.argv`` and exit. An error for the user is one line and has its own exit code."""
    try:
        code = dispatch(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has left, as head does. Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except Exception as error:
        # Luigi wraps some of our errors.
        known = console.for_the_user(error) or unreadable_value(error)
        if known is None:
            raise
        # Luigi may not have parsed the command line, or has refused it.
        log_format = words_and_flags(sys.argv[1:])[1].get("--Storage-log-format")
        console.show(known, log_format=log_format or get_config().get("Storage", "log_format", "text"))
        code = known.exit_code
    sys.exit(code)


def dispatch(argv: Sequence[str]) -> int:
    """Run a command line. Return its exit code."""
    name, rest = (argv[0], argv[1:]) if argv else ("run", [])
    if name in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print("usage: tensorcraft <command> [flags and settings]. Add --help for flags, --help-all for all settings.")
        for command in COMMANDS:
            try:
                text = summary(COMMANDS.load(command))
            except SettingsError as error:
                text = f"(cannot be used) {error}"
            print(f"  {command:{width}}  {text}")
        return 0
    # Tasks of Luigi begin with a capital letter.
    if name.startswith("-") or name[:1].isupper():
        name, rest = "run", argv
    if name not in COMMANDS:
        hint = f"{closest(name, [*COMMANDS])} tensorcraft --help lists them."
        raise SettingsError(f"command line: expected a command, got {name!r}.{hint}")
    function = COMMANDS.load(name)
    return function(Parser(name, summary(function)), rest)


if __name__ == "__main__":
    main()
