"""Weights of the labels in the loss: the formula, mixed labels, backends, replicas, and what a rare label gains."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from text_records import write_text_records
from training_runs import QUICKLY_COMPILED, SETTINGS, request_for, run, train_until

from pipeline.errors import SettingsError
from pipeline.problems.problem import PREDICTIONS_NAME
from pipeline.runs.metrics import WEIGHTS_NAME
from pipeline.settings.training import TrainSettings

BALANCED = TrainSettings(**SETTINGS, class_weight="balanced")


def setup_module() -> None:
    global Crossentropy, keras, label_weights, launch, load_file, fit_linear, mixed_loss
    import keras
    from safetensors.numpy import load_file

    from pipeline.models.model import Crossentropy
    from pipeline.training import launch
    from pipeline.training.fine_tuning import fit_linear
    from pipeline.training.model import label_weights, mixed_loss


def manifest_of(counts):
    named = {f"label {number}": count for number, count in enumerate(counts)}
    return {"splits": {"train": {"num_examples": sum(counts), "label_counts": named}}}


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=20).filter(any))
def test_balanced_labels_have_equal_totals_and_the_mean_weight_is_one(counts):
    weights = label_weights(manifest_of(counts), BALANCED)
    totals = [weights[label] * count for label, count in enumerate(counts) if count]
    assert totals == pytest.approx([totals[0]] * len(totals))
    assert sum(totals) == pytest.approx(sum(counts))
    assert label_weights(manifest_of(counts), TrainSettings(**SETTINGS)) == {}


def test_each_part_of_a_mixed_label_has_the_weight_of_its_own_label(rng):
    probabilities = rng.dirichlet(np.ones(3), 3).astype(np.float32)
    mixed = np.array([[0, 2, 0.75], [1, 1, 0.5], [2, 0, 1]], np.float32)
    loss, weights = Crossentropy(label_smoothing=0.1), {0: 0.5, 1: 1.0, 2: 4.0}
    outputs = keras.ops.convert_to_tensor(probabilities)
    zero, one, two = (np.asarray(loss(np.full(3, label), outputs)) for label in range(3))
    expected = [0.75 * 0.5 * zero[0] + 0.25 * 4 * two[0], one[1], 4 * two[2]]
    found = mixed_loss(loss, weights)(keras.ops.convert_to_tensor(mixed), outputs)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    # Evaluations have plain labels.
    labels = np.array([2, 0, 1])
    np.testing.assert_allclose(mixed_loss(loss, weights)(labels, outputs), loss(labels, outputs))


def test_the_last_layer_is_fitted_as_if_examples_were_repeated(rng):
    labels = np.array([0] * 60 + [1] * 20, np.int32)
    features = rng.normal(size=(80, 4)).astype(np.float32) + labels[:, None]
    one_hot = np.eye(2, dtype=np.float32)[labels]
    weights = label_weights(manifest_of([60, 20]), BALANCED)
    weighted, metrics = fit_linear(features, one_hot, "softmax", np.array([*weights.values()])[labels])
    repeated = np.concatenate([np.arange(80), np.arange(60, 80), np.arange(60, 80)])
    expected, same = fit_linear(features[repeated], one_hot[repeated], "softmax")
    np.testing.assert_allclose(weighted, expected, atol=2e-2)
    assert metrics["loss"] == pytest.approx(same["loss"], rel=1e-3)


def test_records_without_one_label_per_example_are_refused(tmp_path):
    message = r"\[Train\] class_weight: expected none, as texts of these records have no single label each"
    with pytest.raises(SettingsError, match=message):
        run(write_text_records(tmp_path / "text"), tmp_path / "a", model="char_lstm", class_weight="balanced")


@pytest.fixture(scope="module")
def skewed(write_records_of, tmp_path_factory):
    """Records of dark and bright images that overlap: 380 and 20 to train on, 100 each to test on."""
    top, rng = tmp_path_factory.mktemp("skewed"), np.random.default_rng(0)
    for split, counts in {"train": (380, 20), "test": (100, 100)}.items():
        for label, level, count in zip(("dark", "bright"), (100, 150), counts, strict=True):
            folder = top / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.normal(rng.normal(level, 20), 10, (16, 16)).clip(0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
    return write_records_of(top).folder


def recalls(folder):
    """Label → share of its test images that the run predicted."""
    with (folder / PREDICTIONS_NAME).open(newline="") as file:
        rows = [*csv.DictReader(file)]
    return {
        name: np.mean([row["predicted"] == name for row in rows if row["label"] == name]) for name in ("dark", "bright")
    }


@pytest.mark.slow
@pytest.mark.parametrize("augment", ["", "mixup:0.2"])
def test_a_rare_label_is_found_more_often(skewed, tmp_path, augment):
    found = {}
    for class_weight in ("none", "balanced"):
        folder = tmp_path / class_weight
        record = run(skewed, folder, epochs=15, learning_rate=0.01, augment=augment, class_weight=class_weight)
        assert record["class_weight"] == class_weight
        found[class_weight] = recalls(folder)
    assert found["balanced"]["bright"] > found["none"]["bright"] + 0.3, found
    assert found["balanced"]["dark"] > 0.5, found


@pytest.mark.slow
def test_backends_replicas_and_a_resumed_run_give_the_same_weights(skewed, tmp_path, monkeypatch):
    for name, value in QUICKLY_COMPILED.items():
        monkeypatch.setenv(name, value)
    settings = {"class_weight": "balanced", "training_recipe": "adam"}
    run(skewed, tmp_path / "whole", **settings)
    train_until(1, skewed, tmp_path, **settings)
    assert run(skewed, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", **settings)["epochs_restored"] == 1
    for backend in ("tensorflow", "jax"):
        folder = tmp_path / backend
        folder.mkdir()
        record = launch.train_in_child(request_for(skewed, folder, backend=backend, replicas=2, **settings), folder)
        assert (record.backend, record.num_replicas) == (backend, 2)
    whole = load_file(tmp_path / "whole" / WEIGHTS_NAME)
    for other, tolerance in (("resumed", 0), ("tensorflow", 1e-4), ("jax", 5e-3)):
        for name, weight in load_file(tmp_path / other / WEIGHTS_NAME).items():
            np.testing.assert_allclose(weight, whole[name], rtol=0, atol=tolerance, err_msg=f"{other} {name}")
    unweighted = run(skewed, tmp_path / "none", training_recipe="adam")
    assert unweighted["class_weight"] == "none"
    assert any(
        np.abs(weight - whole[name]).max() > 5e-3
        for name, weight in load_file(tmp_path / "none" / WEIGHTS_NAME).items()
    )
