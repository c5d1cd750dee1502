"""Curves of two labels by their definitions, and the evaluation of a real run with two labels."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_files import write_folder
from PIL import Image
from training_runs import request_for


def setup_module() -> None:
    global curves, roc_auc
    from pipeline.problems.classification import curves, roc_auc


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=2, max_size=30))
def test_the_area_is_the_share_of_pairs_in_the_right_order_and_that_below_the_curve(pairs):
    labels, scores = np.array([label for label, _ in pairs]), np.array([score for _, score in pairs]) / 5
    if labels.all() or not labels.any():
        assert roc_auc(labels, scores) is None
        assert curves(labels, scores) == {"roc": [], "precision_recall": []}
        return
    ahead = scores[labels][:, None] - scores[~labels][None]
    assert roc_auc(labels, scores) == pytest.approx(((ahead > 0) + 0.5 * (ahead == 0)).mean())
    rates, recall = np.array(curves(labels, scores)["roc"]).T
    assert np.trapezoid(recall, rates) == pytest.approx(roc_auc(labels, scores), abs=1e-3)
    assert (rates[0], recall[0], rates[-1], recall[-1]) == (0, 0, 1, 1)


def test_long_curves_have_few_points():
    rng = np.random.default_rng(0)
    found = curves(rng.random(5_000) < 0.3, rng.random(5_000))
    assert len(found["roc"]) == 201
    assert len(found["precision_recall"]) == 200


@pytest.mark.slow
def test_two_labels_have_curves_and_the_threshold_of_the_validation_split(write_records_of, tmp_path):
    """Of the images with the second label, a tenth looks like the first one."""
    from pipeline.training.train import train

    folder, rng = write_folder(tmp_path / "images", dark=1, light=1), np.random.default_rng(0)
    for index in range(400):
        label = "light" if index % 4 == 0 else "dark"
        level = 200 if label == "light" and rng.random() > 0.1 else 40
        pixels = rng.integers(level - 30, level + 30, (16, 16, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / label / f"x{index:03d}.png")
    records = write_records_of(folder, validation_share=0.25).folder
    (tmp_path / "run").mkdir()
    options = {"model": "baseline_cnn", "training_recipe": "onecycle", "augment": "", "initial_weights": ""}
    request = request_for(records, tmp_path / "run", epochs=8, global_batch_size=16, **options)
    train(request, tmp_path / "run")
    facts = json.loads((tmp_path / "run" / "evaluation.json").read_text())["binary"]
    assert facts["threshold_of"] == "validation"
    assert 0 < facts["threshold"] < 1
    # The area lacks half of the pairs of the tenth, and precision falls to the share of the label there.
    assert facts["roc_auc"] == pytest.approx(0.95, abs=0.05)
    assert facts["recall"] == pytest.approx(0.9, abs=0.12)
    assert facts["precision"] == pytest.approx(1, abs=0.05)
    assert len(facts["roc"]) > 2
