"""Command line: Luigi's overrides such as ``--Train-epochs 1``, in force for as long as a block lasts.

Luigi's own parser would show the usage of all settings there are where one is unknown: here that is an error for the
user, of one line.
"""

import contextlib
import io
from collections.abc import Iterator, Sequence

from luigi.cmdline_parser import CmdlineParser

from pipeline.errors import SettingsError


@contextlib.contextmanager
def in_force(argv: Sequence[str]) -> Iterator[CmdlineParser]:
    """The block under the overrides of a command line.

    Raises:
        SettingsError: the command line has what nobody knows.
    """
    said = io.StringIO()
    with contextlib.ExitStack() as stack:
        try:
            with contextlib.redirect_stderr(said):
                parser = stack.enter_context(CmdlineParser.global_instance(list(argv)))
        except SystemExit as end:
            if end.code != 2:
                raise
            wrong = said.getvalue().strip().rpartition("error: ")[2]
            raise SettingsError(
                f"command line: {wrong}. python -m tasks Report --help-all lists what there is."
            ) from None
        yield parser
