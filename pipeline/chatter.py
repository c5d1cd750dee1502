"""Chatter: what native libraries write to stderr while they are imported, held back; beside the data's way.

TensorFlow's write at the level of information before any of their log levels is in force.
"""

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_CHATTER = re.compile(rb"I\d{4} \d\d:|WARNING: All log messages before absl::InitializeLog\(\)")


@contextlib.contextmanager
def held_back() -> Iterator[list[bytes]]:
    """Keep stderr quiet while the block imports them; the list has, once it ends, all lines that are no chatter."""
    if not Path("/dev/nvidiactl").exists():
        # Without a card TensorFlow reports the missing driver as an error; 3 lets only fatal ones through.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    said: list[bytes] = []
    with tempfile.TemporaryFile() as written, contextlib.ExitStack() as stack:
        sys.stderr.flush()
        terminal = os.dup(2)
        stack.callback(os.close, terminal)
        os.dup2(written.fileno(), 2)
        try:
            yield said
        finally:
            sys.stderr.flush()
            os.dup2(terminal, 2)
            written.seek(0)
            said.extend(line for line in written if not _CHATTER.match(line))
