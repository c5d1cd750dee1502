"""Whole: files that are there to their end or not at all, though two write the same at one time (the shards' aid).

An engine may run a piece of work twice, in threads of one process or on machines where processes have the same number.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path, within: Path | None = None) -> Iterator[Path]:
    """A path to write to, which takes the place of ``path`` at the end of the block.

    Args:
        path: what is replaced.
        within: a folder of the same file system for what is unfinished, and stays where its writer is killed; the
            file's own where none is given.
    """
    temporary = (within or path.parent) / f".{path.name}.{uuid.uuid4().hex}"
    yield temporary
    os.replace(temporary, path)
