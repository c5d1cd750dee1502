"""What holds of a storage root whatever hit it, for the tests of faults.

The exit codes are those of pipeline/errors.py.
"""

import json
from pathlib import Path

import pytest
from luigi_process import FAST, Luigi

from pipeline.artifacts.manifest import MANIFEST_NAME, check_contents, read_manifest
from pipeline.artifacts.stamps import sha256_of

BUSY, STORAGE, TIME_LIMIT = 5, 6, 8


def sizes(short: int, full: int | None):
    """A test's size in make test or make test-slow, and in make test-faults; None: as the command line says."""
    return [pytest.param(short, id="short"), pytest.param(full, id="full", marks=pytest.mark.faults)]


def artifacts(root: Path) -> list[Path]:
    """Every published folder but the report, which is replaced file by file."""
    found = [path.parent for path in root.rglob(MANIFEST_NAME)]
    return [folder for folder in found if "/." not in str(folder.relative_to(root.parent)) and folder.name != "report"]


def assert_nothing_partial(root: Path) -> None:
    for kind in ("source", "records", "runs"):
        for folder in root.glob(f"{kind}/[!.]*"):
            check_contents(folder, read_manifest(folder))
    for folder in root.glob("checkpoints/[!.]*/[!.]*"):
        check_contents(folder, read_manifest(folder))


def outcome(root: Path) -> dict[str, str]:
    """sha256 of everything that does not hold times: the records and the weights."""
    files = [*root.glob("records/*/*.tfrecord-*"), *root.glob("runs/*/weights.safetensors")]
    return {str(path.relative_to(root)): sha256_of(path) for path in files}


def is_fresh(luigi: Luigi, *args: str) -> bool:
    """Whether nothing is left to do. Asked of a process of its own, because tests call this in threads too."""
    done = luigi.python("-m", "tasks", "status", "--json", *FAST, *args)
    assert done.returncode == 0, done.stderr
    return all(entry["state"] == "fresh" for entry in json.loads(done.stdout).values())
