"""Damage: a file that was changed on the disk is named, and the next run repairs its artifact.

Tests with ``sizes`` have a short form for ``make test`` or ``make test-slow``, and a full one for ``make test-faults``.
"""

import random
import shutil
from pathlib import Path

import pytest
from fault_checks import artifacts, is_fresh, outcome, sizes
from luigi_process import FAST, TINY, Luigi
from mutations import mutate

from pipeline.artifacts.manifest import MANIFEST_NAME, check_files, read_manifest
from pipeline.artifacts.stamps import VERIFIED_NAME
from pipeline.errors import DamagedArtifactError
from tasks.process import lock


@pytest.fixture(scope="module")
def with_checkpoint(first_run, tmp_path_factory) -> tuple[Luigi, list[str]]:
    """A root on which all is done for FAST, and a longer training was killed; and that training's arguments."""
    luigi = first_run.copy(tmp_path_factory.mktemp("checkpoint"))
    arguments = [*FAST[2:], *TINY, "--Train-epochs", "12"]
    process = luigi.start(*arguments)
    assert any("Epoch 3/" in line for line in process.stderr), "training never began"
    process.kill()
    process.communicate()
    lock.clear_away(luigi.root)
    assert list(luigi.root.glob("checkpoints/*/epoch-*"))
    return luigi, arguments


def fault_found(folder: Path) -> str | None:
    """What the check that every run makes says of an artifact; None when it finds it valid."""
    try:
        check_files(folder, read_manifest(folder))
    except DamagedArtifactError as error:
        return str(error)
    return None


@pytest.mark.parametrize("mutations", sizes(60, 300))
def test_a_mutated_file_is_named(with_checkpoint, tmp_path, count, mutations):
    luigi = with_checkpoint[0].copy(tmp_path)
    rng = random.Random(mutations)
    # On a busy machine, the killed training has put its own page in the place of the report, which lists no files then.
    folders = [folder for folder in (*artifacts(luigi.root), luigi.root / "report") if read_manifest(folder)["files"]]
    found = 0
    while found < mutations:
        folder = rng.choice(folders)
        files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
        path = rng.choice(sorted(path for path in files if path.name != VERIFIED_NAME))
        content, manifest = path.read_bytes(), read_manifest(folder)
        way = mutate(path, rng)
        fault = fault_found(folder)
        if fault is None:
            # A bit that turns é's escape from lower to upper case says the same.
            assert path.name == MANIFEST_NAME, f"{path}: {way} was not found"
            assert read_manifest(folder) == manifest, f"{path}: {way} was taken"
        else:
            assert str(path) in fault
            found += 1
        path.write_bytes(content)
        assert fault_found(folder) is None
    count["mutations found and named"] += found


@pytest.mark.faults
def test_the_next_run_repairs_every_mutated_artifact(with_checkpoint, tmp_path, count):
    original, arguments = with_checkpoint
    undisturbed = original.copy(tmp_path / "undisturbed")
    assert undisturbed(*arguments).returncode == 0
    rng = random.Random(0)
    # Each way, to each artifact.
    for turn, way in enumerate([mutate, lambda path, _: path.unlink(), extra_file]):
        luigi = original.copy(tmp_path / str(turn))
        for folder in [*artifacts(luigi.root), luigi.root / "report"]:
            path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size))
            way(path, rng)
            count["mutations repaired"] += 1
        # The damaged run of other settings is the first to be rebuilt.
        for asked in (FAST, arguments):
            done = luigi(*asked)
            assert done.returncode == 0, done.stderr
        assert outcome(luigi.root) == outcome(undisturbed.root)
        assert is_fresh(luigi, *arguments)


def extra_file(path: Path, _: random.Random) -> None:
    shutil.copy(path, path.with_name("note.txt"))
