"""docs/tour.ipynb: its cells run, in a real kernel, and it is stored as someone should find it."""

import os
from pathlib import Path

import pytest


def setup_module() -> None:
    global nbclient, nbformat
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")


PROJECT = Path(__file__).resolve().parent.parent


def read_tour():
    return nbformat.read(PROJECT / "docs" / "tour.ipynb", as_version=4)


@pytest.fixture
def run_tour(tmp_path, monkeypatch):
    """A function that runs the tour's cells, up to one if it is named, and returns them by name.

    ``source``: what the line says that its reader is to change.
    """
    # Kernels of whoever runs the tests stay out of it: "python3" is the one beside this Python.
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")

    def run(*, last: str = "", source: str = 'SOURCE = ""', **environment):
        tour = read_tour()
        for cell in tour.cells:
            cell.source = cell.source.replace('SOURCE = ""', source)
        if last:
            del tour.cells[[cell.id for cell in tour.cells].index(last) + 1 :]
        client = nbclient.NotebookClient(tour, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
        beside = {"PYTHONPATH": str(PROJECT), "TMPDIR": str(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
        client.execute(env={**os.environ, **beside, **environment})
        return {cell.id: cell for cell in tour.cells}

    return run


def printed(cell) -> str:
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def shown(cell, kind: str) -> str:
    return "".join(output.data.get(kind, "") for output in cell.outputs if output.output_type == "display_data")


def test_the_tour_is_a_notebook_stored_without_what_came_of_it():
    tour = read_tour()
    nbformat.validate(tour)
    assert tour.metadata.kernelspec.name == "python3"
    cells = [cell for cell in tour.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None and not cell.metadata for cell in cells)


@pytest.mark.slow
def test_the_tour_goes_from_the_dataset_to_a_report(run_tour, tiny_tfds):
    cells = run_tour(TFDS_DATA_DIR=str(tiny_tfds))
    assert cells["install"].outputs == []
    assert "{'train': 403, 'test': 101}" in printed(cells["source"])
    assert shown(cells["source"], "text/markdown") == ""
    assert "cifar10-train.tfrecord-00000-of-00004" in printed(cells["records"])
    assert "{'image': ((32, 32, 3), 'uint8')" in printed(cells["tfds"])
    assert "epoch 1 again is the same: True" in printed(cells["stream"])
    assert "epoch 2 is the same: False" in printed(cells["stream"])
    assert shown(cells["stream"], "image/png")
    assert "% of 101 test images are correct" in printed(cells["train"])
    assert "verified:    True" in printed(cells["receipt"])
    page = shown(cells["report"], "text/html")
    assert "srcdoc=" in page
    assert "baseline_cnn" in page


@pytest.mark.slow
def test_the_tour_reports_the_placeholder(run_tour, tmp_path):
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    cells = run_tour(last="source", TFDS_DATA_DIR=str(tmp_path / "tfds"), **nowhere)
    assert "not CIFAR-10" in shown(cells["source"], "text/markdown")
    assert "{'train': 10000, 'test': 2000}" in printed(cells["source"])


@pytest.mark.slow
def test_a_failed_installation_is_reported_in_its_cell(run_tour):
    """%pip itself goes on, and the next cell would not find the package."""
    source = 'SOURCE = "no address"\nimportlib.util.find_spec = lambda name: None'
    with pytest.raises(nbclient.exceptions.CellExecutionError, match="The installation failed") as told:
        run_tour(last="install", source=source)
    assert "ModuleNotFoundError" in str(told.value)
