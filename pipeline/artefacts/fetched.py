"""Fetched: that an artefact was not made here, and from where and when it came (the artefacts' aid).

It lies beside the manifest, which is the same on every machine, and is no part of the artefact.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

FETCHED_NAME = "fetched.json"


def write_fetched(folder: Path, *, remote: str) -> None:
    """Note in an artefact's folder that it came from a remote."""
    note = {"remote": remote, "fetched_at": datetime.now(UTC).isoformat(timespec="seconds")}
    (folder / FETCHED_NAME).write_text(json.dumps(note) + "\n", encoding="utf-8")


def read_fetched(folder: Path) -> dict[str, str] | None:
    """``remote`` and ``fetched_at``; None where the artefact was made here."""
    path = folder / FETCHED_NAME
    if not path.exists():
        return None
    try:
        note = json.loads(path.read_bytes())
        return {name: str(note[name]) for name in ("remote", "fetched_at")}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        # That it is there says that it came from somewhere.
        return {"remote": "a remote", "fetched_at": ""}
