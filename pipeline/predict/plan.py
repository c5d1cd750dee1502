"""Plan: what every step of the job needs to know (predict's aid)."""

import os
from dataclasses import dataclass

from pipeline.config.data import FULL_RANGE


def shown(path: str) -> str:
    """The path as text: a file may have a name that is none."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


@dataclass(frozen=True)
class Job:
    """What every step needs to know; small, and plain data.

    ``run`` is the folder of a run and ``problem`` its problem; ``resize`` how images reach its network's size;
    ``label_names`` its labels or vocabulary; ``files`` the folder of the files; ``paths`` a JSON file that lists them;
    ``parts`` a folder that workers share; ``views`` how often an image is seen, see problems/views.py;
    ``model`` [Train] model of the present settings; ``value_range`` as of the source that the run was trained on.
    """

    run: str
    problem: str
    resize: str
    label_names: tuple[str, ...]
    files: str
    paths: str
    parts: str
    views: str
    model: str = ""
    value_range: tuple[int, int] = FULL_RANGE
