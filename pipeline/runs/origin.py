"""Origin of a run, with its settings and the code that trained it."""

import os
import shlex
import subprocess
from pathlib import Path

from pipeline.runs.validation import Untrusted

_GIT_SECONDS = 10


class Origin(Untrusted):
    """Settings of a run, and its code.

    ``settings`` contains the text of each setting by section, if it differs from its default or from config.ini.
    ``commit`` is that of the project's folder, None without git. ``is_dirty`` means that tracked files had changes.
    ``version`` is that of the installed distribution.
    """

    settings: dict[str, dict[str, str]] = {}
    commit: str | None = None
    is_dirty: bool | None = None
    version: str | None = None

    def command(self) -> str:
        """Return the command that repeats the run, quoted for a shell."""
        flags = [
            f"--{section}-{name.replace('_', '-')}={text}"
            for section, texts in self.settings.items()
            for name, text in texts.items()
        ]
        return shlex.join(["tensorcraft", "run", *flags])


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Return the commit of a folder's work tree, and whether tracked files have changes.

    Both are None if the folder is not in a work tree, or if git is not installed, fails or takes longer than 10 s. A
    work tree without commits has no commit. The command runs no hook, monitor or pager and writes no file.
    """
    options = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    status = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=dirty")
    # The variables of git, as in a hook, may name another work tree.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        output = subprocess.run(
            ["git", *options, *status],
            cwd=folder,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=_GIT_SECONDS,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.SubprocessError):
        return None, None
    lines = output.splitlines()
    commit = next((words[2] for words in map(str.split, lines) if words[1:2] == ["branch.oid"]), None)
    return None if commit == "(initial)" else commit, any(not line.startswith("#") for line in lines)
