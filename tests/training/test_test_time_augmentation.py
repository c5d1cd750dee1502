"""Test-time augmentation: a figure of its own, which the plain one and the weights know nothing of."""

import shutil

import numpy as np
import pytest
from PIL import Image
from training_runs import run

from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.predict import Job
from pipeline.problems.problem import open_split
from pipeline.runs.metrics import WEIGHTS_NAME


def setup_module() -> None:
    global InputStream, Split, as_probabilities, reevaluate, class_rows, load_trained
    from pipeline.models.model import as_probabilities
    from pipeline.predict.rows import class_rows
    from pipeline.runs.load_model import load_trained
    from pipeline.streams.tf_data import InputStream, Split
    from pipeline.training.results import reevaluate


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def runs(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    found = {}
    for how in ("none", "flip", "flip_translate"):
        settings = {"model": "mnist_dense", "training_recipe": "adam", "test_time_augmentation": how}
        found[how] = (folder / how, run(small_records, folder / how, **settings))
    return found


def test_all_else_is_as_without(runs):
    folder, plain = runs["none"]
    assert (plain["test_time_augmentation"], plain["test_tta_accuracy"]) == ("none", None)
    for how in ("flip", "flip_translate"):
        other, record = runs[how]
        assert record["test_time_augmentation"] == how
        assert record["test_accuracy"] == plain["test_accuracy"]
        assert (other / WEIGHTS_NAME).read_bytes() == (folder / WEIGHTS_NAME).read_bytes()


@pytest.mark.parametrize(("run", "how"), [("none", "flip"), ("flip_translate", "none")])
def test_evaluated_again_it_is_the_run_that_was_trained_so(runs, small_records, tmp_path, run, how):
    folder, _ = runs[run]
    write_manifest(shutil.copytree(folder, tmp_path / "run"), stage="Train", identity={}, details={})
    (tmp_path / "again").mkdir()
    found = reevaluate(tmp_path / "run", small_records, how, tmp_path / "again").model_dump()
    expected = runs[how][1]
    for name in ("test_time_augmentation", "test_tta_accuracy", "validation_tta_accuracy", "test_accuracy"):
        assert found[name] == expected[name], name
    assert (tmp_path / "again" / WEIGHTS_NAME).read_bytes() == (folder / WEIGHTS_NAME).read_bytes()


@pytest.mark.parametrize("how", ["flip", "flip_translate"])
def test_it_is_the_accuracy_of_the_mean_over_the_views_as_predict_has_it(runs, small_records, how):
    folder, record = runs[how]
    split = open_split(small_records, read_manifest(small_records), "test")
    stream = InputStream(split, global_batch_size=101, seed=0)
    images, labels = next(stream.evaluation().as_numpy_iterator())
    trained = load_trained(folder)
    found = trained.probabilities(images, how)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    # Of 101 images not one is another's.
    assert (found.argmax(axis=1) == labels).mean() == pytest.approx(record["test_tta_accuracy"], abs=0.005)
    if how == "flip":
        outputs = [trained.model.predict_on_batch(one) for one in (images, images[:, :, ::-1])]
        np.testing.assert_allclose(found, as_probabilities(sum(outputs) / 2, "logits"), atol=1e-5)


@pytest.mark.parametrize("how", ["none", "flip_translate"])
def test_predict_answers_by_the_views_of_the_run(runs, small_records, tmp_path, how):
    folder, _ = runs[how]
    manifest = read_manifest(small_records)
    split = open_split(small_records, manifest, "test")
    stream = InputStream(split, global_batch_size=5, seed=0)
    images, _ = next(stream.evaluation().as_numpy_iterator())
    names = [f"{place}.png" for place in range(len(images))]
    for name, image in zip(names, images, strict=True):
        Image.fromarray(image).save(tmp_path / name)
    labels = tuple(manifest["label_names"])
    job = Job(str(folder), labels, views=how, files=str(tmp_path))
    (rows,) = class_rows(names, job, load_trained(folder))
    found = np.stack([rows.column(f"probability of {label}").to_numpy() for label in labels], axis=1)
    np.testing.assert_allclose(found, load_trained(folder).probabilities(images, how), atol=1e-6)
