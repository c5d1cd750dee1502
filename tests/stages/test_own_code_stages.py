"""A network of one's own in the whole pipeline: where it is found, what makes it stale, how it is refused."""

import json

import pytest
from luigi_process import FAST
from own_package import write_package

OWN = ["--Train-model", "my_package.networks:build", "--Train-training-recipe", "my_package.recipes:recipe"]


@pytest.fixture
def luigi(first_run, tmp_path):
    return first_run.copy(tmp_path / "own")


@pytest.mark.slow
def test_it_lies_in_the_working_directory_and_its_run_is_stale_when_its_code_changes(luigi, tmp_path):
    package = write_package(tmp_path / "work")

    def python(*command: str):
        done = luigi.python(*command, *FAST, *OWN, cwd=package.parent)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def train() -> dict:
        return json.loads(python("-m", "tasks", "status", "--json"))["Train"]

    python("-m", "tasks", "Report")
    (folder,) = luigi.root.glob("runs/my_package.networks.build-*")
    assert json.loads((folder / "run.json").read_text())["outputs"] == "logits"
    assert "logits" in (luigi.root / "report" / "report.html").read_text()
    assert train()["state"] == "fresh"
    (package / "elsewhere.py").write_text("x = 3\n")
    assert train()["state"] == "fresh"
    for name, old, new in (("blocks", "strides=2", "strides=1"), ("recipes", "momentum=0.9", "momentum=0.8")):
        path = package / f"{name}.py"
        path.write_text(path.read_text().replace(old, new))
    changed = ["my_package.blocks.convolution changed", "my_package.recipes.recipe changed"]
    assert train()["reasons"] == [*changed, f"compared with runs/{folder.name}"]


def test_missing_user_code_is_refused_before_any_work(luigi, tmp_path):
    write_package(tmp_path / "work")
    before = luigi.artifacts("records")
    args = ["--Train-model", "my_package.networks:bild", "--Records-seed", "9"]
    done = luigi.python("-m", "tasks", "Report", *FAST, *args, cwd=tmp_path / "work")
    assert done.returncode == 2, done.stderr
    assert "my_package.networks has no bild." in done.stderr
    assert luigi.artifacts("records") == before
