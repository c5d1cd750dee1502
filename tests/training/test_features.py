"""Features of a frozen backbone are computed once, and later runs read them.

A tiny model stands for a pretrained one.
"""

import numpy as np
import pytest
from training_runs import SETTINGS, Killed, run

from pipeline.artifacts.manifest import read_manifest
from pipeline.problems.problem import open_split
from pipeline.runs.initial_weights import find_initial_weights
from pipeline.settings.training import PRETRAINED
from pipeline.training.launch import FeaturesArtifact

MODEL = SETTINGS["model"]
HEAD = {"fine_tune": "head", "epochs": 1}


def setup_module() -> None:
    global keras
    import keras
    from safetensors.numpy import save_file

    from pipeline.models.build import build_model
    from pipeline.training.model import named_weights

    global write_weights

    def write_weights(file):
        keras.utils.set_random_seed(5)
        save_file(named_weights(build_model(MODEL, (32, 32, 3), 10)), file)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    file = tmp_path_factory.mktemp("weights") / "first.safetensors"
    write_weights(file)
    return file


@pytest.fixture
def how(first, monkeypatch, tmp_path):
    """Arguments of a run of the pretrained model, with an artifact that does not exist yet."""
    monkeypatch.setitem(PRETRAINED, MODEL, ("no-distribution", "no_file"))
    artifact = FeaturesArtifact(folder=tmp_path / "features" / "a", identity={"of": "the test"}, experiment="e")
    initial = find_initial_weights(str(first), first.parent)
    return {"initial_weights": str(first), "initial": initial, "features": artifact, **HEAD}


def refuse_to_compute(*_):
    raise AssertionError("computed again")


def test_a_run_with_another_seed_reads_the_features_and_evaluates_as_the_saved_model(
    small_records, how, tmp_path, monkeypatch
):
    computed = run(small_records, tmp_path / "first", **how)
    manifest = read_manifest(how["features"].folder)
    assert (manifest["stage"], manifest["identity"], manifest["experiment"]) == ("Features", {"of": "the test"}, "e")
    assert manifest["used"]["precision"] == "float32"
    assert {file["name"] for file in manifest["files"]} == {"train.safetensors", "test.safetensors"}
    monkeypatch.setattr("pipeline.training.fine_tuning._compute", refuse_to_compute)
    read = run(small_records, tmp_path / "second", **how, seed=3, weight_decay=0.1)
    assert (read["test_accuracy"], read["test_loss"]) == (computed["test_accuracy"], computed["test_loss"])
    assert (computed["beginning"]["features"], read["beginning"]["features"]) == ("computed", "read")
    model = keras.saving.load_model(tmp_path / "second" / "model.keras")
    test = open_split(small_records, read_manifest(small_records), "test")
    outputs, labels = zip(*_predicted(model, test), strict=True)
    assert (np.concatenate(outputs).argmax(axis=-1) == np.concatenate(labels)).mean() == read["test_accuracy"]
    # The other epochs change the backbone, so only the first phase uses its features.
    both = run(small_records, tmp_path / "both", **{**how, "fine_tune": "head_then_full"}, learning_rate=1e-6)
    assert both["test_loss"] == pytest.approx(read["test_loss"], rel=1e-3)


def _predicted(model, split):
    from pipeline.streams.tf_data import InputStream

    for images, labels in InputStream(split, global_batch_size=64, seed=0).evaluation().as_numpy_iterator():
        yield model.predict_on_batch(images), labels


def test_a_run_that_was_killed_after_the_features_does_not_compute_them_again(
    small_records, how, tmp_path, monkeypatch
):
    from pipeline.training import fine_tuning

    def kill(*_):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fine_tuning, "fit_linear", kill)
        with pytest.raises(Killed):
            run(small_records, tmp_path / "killed", **how)
    monkeypatch.setattr("pipeline.training.fine_tuning._compute", refuse_to_compute)
    assert run(small_records, tmp_path / "again", **how)["test_accuracy"] > 0.1


def test_features_that_are_damaged_or_of_another_precision_are_replaced(small_records, how, tmp_path):
    run(small_records, tmp_path / "first", **how)
    file = how["features"].folder / "train.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    run(small_records, tmp_path / "second", **how)
    assert file.read_bytes() == content
    run(small_records, tmp_path / "third", **{**how, "precision": "bfloat16"})
    assert read_manifest(how["features"].folder)["used"]["precision"] == "bfloat16"
    assert file.read_bytes() != content
