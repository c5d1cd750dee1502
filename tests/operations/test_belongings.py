"""What of a storage root belongs to a run or an interrupted one, by manifests and records as they may be found."""

import json

import pytest

from pipeline.artefacts.manifest import read_manifest, write_manifest
from tasks.operations.belongings import belongings, trainings
from tasks.process import command_line


@pytest.fixture
def root(tmp_path):
    with command_line.in_force(["--module", "tasks", "Report", "--Storage-root", str(tmp_path)]):
        yield tmp_path


def artefact(root, name: str, identity: dict, **details) -> str:
    """Writes one; its fingerprint."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    write_manifest(folder, stage="planted", identity={"name": name, **identity}, details=details)
    return read_manifest(folder)["fingerprint"]


def run(root, name: str, records: str, **record) -> str:
    folder = root / "runs" / name
    folder.mkdir(parents=True)
    content = {"fingerprint": name, "dataset": "mnist", "records_fingerprint": records, **record}
    (folder / "run.json").write_text(json.dumps(content))
    return artefact(root, f"runs/{name}", {})


def records(root, name: str) -> str:
    artefact(root, f"source/{name}", {}, source={"dataset": name})
    return artefact(root, f"records/{name}", {"upstream": {"dataset": name}})


def names(root, folders) -> set[str]:
    return {str(folder.relative_to(root)) for folder in folders}


def test_an_interrupted_run_needs_its_records_their_source_and_the_run_it_begins_with(root):
    mine, others = records(root, "mine"), records(root, "others")
    first = run(root, "first", others, experiment="cifar10")
    run(root, "second", others, experiment="cifar10")
    about = {"experiment": "flowers", "records_fingerprint": mine, "initial_run": first}
    artefact(root, "checkpoints/waiting/epoch-000003", {"run": "f"}, belongs_to=about)
    waiting = [training for training in trainings() if training.experiment == "flowers"]
    assert [(training.run, training.records) for training in waiting] == [("f", mine)]
    assert names(root, belongings(waiting)) == {"checkpoints/waiting", "records/mine", "source/mine", "runs/first"}


def test_a_run_needs_its_records_and_its_exports_stay_with_it(root):
    fingerprint = run(root, "one", records(root, "mine"))
    run(root, "other", records(root, "others"))
    artefact(root, "exports/of-one", {"upstream": {"run": fingerprint}})
    artefact(root, "exports/of-another", {"upstream": {"run": "gone"}})
    one = [training for training in trainings() if training.folder.name == "one"]
    assert one[0].experiment == "mnist", "called as the dataset is"
    assert names(root, belongings(one)) == {"runs/one", "records/mine", "source/mine", "exports/of-one"}


def test_of_what_says_nothing_of_itself_nothing_is_known(root):
    artefact(root, "checkpoints/of-an-earlier-version/epoch-000001", {"run": "f"})
    artefact(root, "checkpoints/odd/epoch-000001", {"run": "f"}, belongs_to=["flowers"])
    run(root, "torn", "r")
    (root / "runs" / "torn" / "run.json").write_text("{")
    (root / "runs" / "a-file").write_text("mine")
    # Nor does what is unknown need all that is unknown.
    (root / "records" / "damaged").mkdir(parents=True)
    run(root, "without-records", None)
    known = trainings()
    assert [training.folder.name for training in known] == ["without-records"]
    assert names(root, belongings(known)) == {"runs/without-records"}
