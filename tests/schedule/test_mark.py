"""What of a storage root belongs to a run or an interrupted one, by manifests and records as they may be found."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from report_runs import RUN

from pipeline.artifacts.manifest import read_manifest, write_manifest
from tasks import retention
from tasks.retention import find_stale, mark, read_artifacts
from tasks.settings import in_force


@pytest.fixture
def root(tmp_path):
    with in_force(["--module", "tasks", "Report", "--Storage-root", str(tmp_path)]):
        yield tmp_path


def artifact(root, name: str, identity: dict, **details) -> str:
    """Writes one; its fingerprint."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, stage="planted", identity={"name": name, **identity}, details=details)
    return read_manifest(folder)["fingerprint"]


def run(root, name: str, records: str, **record) -> str:
    folder = root / "runs" / name
    folder.mkdir(parents=True)
    content = {**RUN, "requested_dataset": "mnist", "dataset": "mnist", "records_fingerprint": records, **record}
    (folder / "run.json").write_text(json.dumps(content))
    return artifact(root, f"runs/{name}", {})


def records(root, name: str) -> str:
    artifact(root, f"source/{name}", {}, source={"dataset": name})
    return artifact(root, f"records/{name}", {"upstream": {"dataset": name}})


def names(root, folders) -> set[str]:
    return {str(folder.relative_to(root)) for folder in folders}


def marked(root, *roots: str) -> set[str]:
    return names(root, mark(read_artifacts(root), {root / name for name in roots}))


def test_an_interrupted_run_needs_its_records_their_source_and_the_run_it_begins_with(root):
    mine, others, third = records(root, "mine"), records(root, "others"), records(root, "third")
    first = run(root, "first", others, experiment="cifar10")
    run(root, "second", third, experiment="cifar10")
    about = {"experiment": "flowers", "records_fingerprint": mine, "initial_run": first}
    artifact(root, "checkpoints/waiting/epoch-000003", {"run": "f"}, belongs_to=about)
    of_the_checkpoint = {"checkpoints/waiting", "records/mine", "source/mine"}
    of_the_run = {"runs/first", "records/others", "source/others"}
    assert marked(root, "checkpoints/waiting") == of_the_checkpoint | of_the_run


def test_a_run_needs_its_records_and_an_export_its_run(root):
    fingerprint = run(root, "one", records(root, "mine"))
    run(root, "other", records(root, "others"))
    artifact(root, "exports/of-one", {"upstream": {"run": fingerprint}})
    artifact(root, "exports/of-another", {"upstream": {"run": "gone"}})
    assert marked(root, "runs/one") == {"runs/one", "records/mine", "source/mine"}
    assert marked(root, "exports/of-one") == {"exports/of-one", "runs/one", "records/mine", "source/mine"}
    (one,) = [artifact for artifact in read_artifacts(root) if artifact.folder.name == "one"]
    assert one.experiment == "mnist", "the name of the dataset"


def test_an_artifact_that_does_not_state_its_inputs_needs_nothing(root):
    artifact(root, "checkpoints/of-an-earlier-version/epoch-000001", {"run": "f"})
    artifact(root, "checkpoints/odd/epoch-000001", {"run": "f"}, belongs_to=["flowers"])
    run(root, "torn", "r")
    (root / "runs" / "torn" / "run.json").write_text("{")
    (root / "runs" / "a-file").write_text("mine")
    (root / "runs" / "a-folder").mkdir()
    (root / "records" / "damaged").mkdir(parents=True)
    (root / "records" / "damaged" / "manifest.json").write_text("{")
    run(root, "without-records", None)
    found = {artifact.folder.name: artifact for artifact in read_artifacts(root)}
    assert set(found) == {"of-an-earlier-version", "odd", "torn", "damaged", "without-records"}
    assert all(not artifact.needs for artifact in found.values())
    assert found["torn"].experiment is None


def test_artifacts_that_others_may_be_about_to_use_stay_a_day(root, monkeypatch):
    for name in ("new", "old"):
        artifact(root, f"records/{name}", {}, experiment="flowers")
        artifact(root, f"records/{name}-mine", {}, experiment="mine")
    earlier = [
        replace(one, here_since=datetime.now(UTC) - timedelta(days=2 * one.folder.name.startswith("old")))
        for one in read_artifacts(root)
    ]
    monkeypatch.setattr(retention, "read_artifacts", lambda _: earlier)
    monkeypatch.setattr(retention, "_experiments_of", lambda _: {None, "mine"})
    monkeypatch.setattr(retention, "_folders_of", lambda *_: [])
    assert names(root, find_stale([])) == {"records/new-mine", "records/old", "records/old-mine"}


def test_the_champion_and_all_that_it_needs_are_never_removed(root, monkeypatch):
    fingerprints = {}
    for name in ("champion", "other"):
        about = {"requested_dataset": "cifar10", "dataset": "cifar10", "finished_at": "2020-01-01T00:00:00+00:00"}
        fingerprints[name] = run(root, name, records(root, name), **about)
        artifact(root, f"exports/of-{name}", {"upstream": {"run": fingerprints[name]}})
    run(root, "newest", records(root, "newest"), requested_dataset="cifar10", dataset="cifar10", test_accuracy=0.9)
    (root / "champion").symlink_to("runs/champion")
    monkeypatch.setattr(retention, "_experiments_of", lambda _: {None, "cifar10", "mnist"})
    monkeypatch.setattr(retention, "_folders_of", lambda *_: [])
    of_the_champion = {f"{kind}/champion" for kind in ("source", "records", "runs")} | {"exports/of-champion"}
    removable = names(root, find_stale([]))
    assert not removable & of_the_champion
    assert removable >= {"runs/other", "records/other", "source/other", "exports/of-other", "runs/newest"}
    monkeypatch.setattr(retention, "Storage", lambda: SimpleNamespace(keep_runs=0, keep_days=30))
    assert retention.apply_limits([])
    assert names(root, (path for path in root.glob("*/*") if "champion" in path.name)) >= of_the_champion
    assert not (root / "runs" / "other").exists()
    assert (root / "runs" / "newest").exists()
    (root / "champion").unlink()
    assert "runs/champion" in names(root, find_stale([]))
