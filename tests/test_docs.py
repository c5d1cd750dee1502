"""The documents: what they name is there, and what they show runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from luigi_process import Luigi
from PIL import Image

PROJECT = Path(__file__).resolve().parent.parent


def tree() -> list[str]:
    """The paths that the README's layout names."""
    block = (PROJECT / "README.md").read_text().partition("## Layout\n\n")[2]
    paths, folder = [], ""
    for line in block.splitlines():
        indent, name = len(line) - len(line.lstrip()) - 4, line.split()[0]
        path = name if indent == 0 else f"{folder}{name}"
        folder = path if indent == 0 else folder
        paths.append(path)
    return paths


def test_the_readmes_tree_is_the_repositorys():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout.split()
    named = set(tree())
    for path in named - {"data/"}:
        assert any(file == path or file.startswith(path) for file in tracked), path
    for room in ("pipeline", "tasks"):
        folders = {
            "/".join(file.split("/")[:2]) + "/" for file in tracked if file.startswith(room) and file.count("/") > 1
        }
        assert folders <= named
    assert {file for file in tracked if re.fullmatch(r"pipeline/\w+\.py", file)} - named == {"pipeline/__init__.py"}


def test_what_the_documents_link_to_is_there():
    for page in (PROJECT / "README.md", *(PROJECT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.slow
def test_the_readmes_python_runs_as_written(tmp_path, tiny_tfds):
    (code,) = re.findall(r"```python\n(.*?)```", (PROJECT / "README.md").read_text(), re.DOTALL)
    # 403 images: a batch of 128 is one step in three.
    environment = {**os.environ, "TFDS_DATA_DIR": str(tiny_tfds), "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"% on cpu, verified: True$", done.stdout.strip())


@pytest.mark.slow
def test_the_page_on_own_data_goes_from_a_folder_to_a_report(tmp_path, tiny_tfds):
    page = (PROJECT / "docs" / "how-to" / "own-data.md").read_text()
    rng = np.random.default_rng(0)
    for number in range(180):
        label = ("daisy", "roses", "tulips")[number % 3]
        folder = tmp_path / "flowers" / label
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 80, (110, 140, 3)) + 80 * (number % 3)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.jpg")
    luigi = Luigi(tmp_path, tiny_tfds)
    (settings,) = re.findall(r"```ini\n(\[Source\]\n.*?)```", page, re.DOTALL)
    luigi.write_config(settings.replace("path = flowers", f"path = {tmp_path / 'flowers'}"))
    done = luigi("--Train-epochs", "1")
    assert done.returncode == 0, done.stderr
    (run,) = luigi.report()["runs"]
    assert (run["dataset"], run["requested_dataset"]) == ("flowers", "flowers")
    assert luigi("--Train-epochs", "1").stdout.startswith("Report:")
    (arguments,) = re.findall(r"tensorcraft run (--Source-dataset folder.*)", page)
    assert {"dataset folder", "path flowers"} <= set(re.findall(r"--Source-(\w+ \w+)", arguments))
