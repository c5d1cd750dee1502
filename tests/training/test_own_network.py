"""A network and a recipe of a user's own, trained, saved and loaded where nothing of this project is."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from own_package import forget, write_package
from training_runs import run

from pipeline.artifacts.manifest import write_fetched, write_manifest
from pipeline.errors import SettingsError
from pipeline.problems.problem import EVALUATION_NAME
from pipeline.runs.metrics import MODEL_NAME, WEIGHTS_NAME
from pipeline.sources import placeholder_images
from pipeline.stage_process import IN_PROCESS


def setup_module() -> None:
    global keras, load_file, load_trained, named_variables
    import keras
    from safetensors.numpy import load_file

    from pipeline.models.model import named_variables
    from pipeline.runs.load_model import load_trained


IMAGES, LABELS = placeholder_images.draw_block("test", 0, 101)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        forget()
        yield write_package(folder)
        forget()


@pytest.fixture(scope="module")
def run_of(package, small_records, tmp_path_factory):
    """A function that trains a model of the package once and returns the run's folder and record."""
    runs = {}

    def train(function: str, precision: str):
        if (function, precision) not in runs:
            folder = tmp_path_factory.mktemp("runs") / "a"
            settings = {
                "model": f"my_package.networks:{function}",
                "training_recipe": "my_package.recipes:smoothed",
            }
            runs[function, precision] = folder, run(small_records, folder, precision=precision, **settings)
        return runs[function, precision]

    return train


@pytest.mark.parametrize(
    ("function", "precision", "outputs"),
    [
        pytest.param("build", "bfloat16", "logits", marks=pytest.mark.slow),
        ("sure", "float32", "probabilities"),
    ],
)
def test_a_network_of_ones_own_trains_and_its_figures_are_of_probabilities(run_of, function, precision, outputs):
    folder, record = run_of(function, precision)
    assert (record["model"], record["outputs"]) == (f"my_package.networks:{function}", outputs)
    trained = load_trained(folder)
    # Kept as the user built it.
    assert isinstance(trained.model.layers[-1], keras.layers.Dense if outputs == "logits" else keras.layers.Softmax)
    probabilities = trained.probabilities(IMAGES)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=0.02 if precision == "bfloat16" else 1e-5)
    assert (probabilities.argmax(axis=1) == LABELS).mean() == pytest.approx(record["test_accuracy"], abs=0.02)
    facts = json.loads((folder / EVALUATION_NAME).read_text())
    assert facts["accuracy"] == pytest.approx(record["test_accuracy"], abs=1e-6)
    assert all(0 <= one["confidence"] <= 1 for one in facts["test_images"])
    saved, loaded = load_file(folder / WEIGHTS_NAME), named_variables(trained.model)
    assert len(saved) == len(trained.model.weights)
    # Under the names that they have in the model.
    for name, weights in saved.items():
        np.testing.assert_array_equal(loaded[name], weights)


@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.slow)])
def test_a_subclassed_network_is_built_by_its_code_with_the_weights_of_the_run(
    package, small_records, tmp_path, monkeypatch, backend
):
    monkeypatch.setenv("PYTHONPATH", str(package.parent), prepend=":")
    # A process that another test has started does not find the package.
    monkeypatch.setenv(IN_PROCESS, "1")
    record = run(small_records, tmp_path / "a", model="my_package.subclassed:build", backend=backend)
    assert not (tmp_path / "a" / MODEL_NAME).exists()
    assert json.loads((tmp_path / "a" / "task.json").read_text())["task"]["num_labels"] == 10
    assert record["model_bytes"] == (tmp_path / "a" / WEIGHTS_NAME).stat().st_size
    trained = load_trained(tmp_path / "a")
    probabilities = trained.probabilities(IMAGES)
    assert (probabilities.argmax(axis=1) == LABELS).mean() == pytest.approx(record["test_accuracy"], abs=0.02)
    # The code of the run is in its manifest.
    identity = {"code": {"my_package.subclassed": {"<module>": "0" * 64}}}
    write_manifest(tmp_path / "a", stage="Train", identity=identity, details={})
    with pytest.raises(SettingsError, match=r"The code has changed since the training: my_package\.subclassed"):
        load_trained(tmp_path / "a")


def test_its_model_loads_where_its_package_alone_is(package, run_of):
    folder, _ = run_of("sure", "float32")
    code = "import sys, keras, my_package.networks; print(keras.saving.load_model(sys.argv[1]).output_shape)"
    command = [sys.executable, "-c", code, folder / MODEL_NAME]
    # Without TensorFlow, which takes seconds to import.
    environment = {**os.environ, "KERAS_BACKEND": "numpy"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=package.parent, check=False, env=environment)
    assert done.stdout.strip() == "(None, 10)", done.stderr


def test_a_network_that_is_not_what_it_has_to_be_is_refused_before_the_first_step(package, small_records, tmp_path):
    (package / "wrong.py").write_text("def build(input_shape, num_labels):\n    return None\n")
    with pytest.raises(SettingsError, match="it returned None"):
        run(small_records, tmp_path / "a", model="my_package.wrong:build")
    assert not (tmp_path / "a-checkpoints").exists()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["networks", "subclassed"])
def test_the_exported_forms_of_a_network_that_gives_logits_give_probabilities(package, small_records, tmp_path, module):
    pytest.importorskip("ai_edge_litert", reason="the optional packages of export are not installed")
    from pipeline.runs import export
    from pipeline.runs.exporters import SAVED_MODEL

    run(small_records, tmp_path / "a", model=f"my_package.{module}:build", epochs=3)
    folder = tmp_path / "exported"
    folder.mkdir()
    facts = export.export(
        tmp_path / "a", small_records, folder, formats=["saved_model", "litert", "onnx"], calibration_examples=20
    )
    found = export.SavedModel.load(folder / SAVED_MODEL.file)(IMAGES)
    np.testing.assert_allclose(found, load_trained(tmp_path / "a").probabilities(IMAGES), atol=1e-5)
    for form in ("LiteRT float32", "ONNX"):
        assert facts["forms"][form]["largest_difference"] < 1e-4


def test_code_that_a_fetched_run_names_is_imported_only_where_the_settings_name_it(trained, tmp_path, monkeypatch):
    run = shutil.copytree(trained[0], tmp_path / "run")
    write_fetched(run, remote="s3://bucket/team")
    assert load_trained(run, model="tests.tiny_model:build").record.model == "tests.tiny_model:build"
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"model": "evil:build"}))
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        SettingsError, match=r"is from s3://bucket/team, .*Allow its import with --Train-model evil:build"
    ):
        load_trained(run, model="tests.tiny_model:build")
    # An installed package registers no model of this name.
    (run / "run.json").write_text(json.dumps(record | {"model": "evil"}))
    assert load_trained(run, model="tests.tiny_model:build").record.model == "evil"
    assert "evil" not in sys.modules
