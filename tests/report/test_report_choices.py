"""What the report says of augmentation, and of the epoch a run kept."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from report_runs import EPOCH, render, write_evaluation

from pipeline.errors import DamagedArtefactError


def setup_module() -> None:
    global read_run
    from pipeline.report import read_run


AUGMENTED = [{"index": 4, "label": 1, "epoch": epoch} for epoch in range(3)]


def test_augmented_examples_are_shown_with_what_they_are(make_run, tmp_path):
    folder = write_evaluation(make_run(augment="flip, crop:4"), augmented=AUGMENTED)
    files = render([folder], tmp_path / "out")
    assert "<h3>Augmented: flip, crop:4</h3>" in files["report.html"]
    found = re.findall(
        r'<img src="data:image/png;base64,([^"]+)" alt="Training image 4, dog, ([^"]+)">', files["report.html"]
    )
    assert [seen for _, seen in found] == ["as stored", "in epoch 1", "in epoch 2"]
    sheet = np.array(Image.open(folder / "augmented.png"))
    for place, (picture, _) in enumerate(found):
        pixels = np.array(Image.open(io.BytesIO(base64.b64decode(picture))))
        np.testing.assert_array_equal(pixels, sheet[:, 8 * place : 8 * place + 8])
    assert "training accuracy is on augmented images, as the network saw them" in files["report.md"]


def test_under_mixup_the_training_accuracy_is_said_to_be_of_the_greater_part(make_run, tmp_path):
    page = render([make_run(augment="mixup:0.2")], tmp_path / "out")["report.md"]
    assert "Augmentation: mixup:0.2; training accuracy is on augmented images, the label of the greater part" in page


def test_a_run_without_augmentation_shows_none_of_it(make_run, tmp_path):
    files = render([write_evaluation(make_run())], tmp_path / "out")
    # The word stands among the terms, of the test split.
    assert not any(word in files[name] for name in ("report.md", "report.html") for word in ("Augment", "ugmented"))
    assert "Weights kept" not in files["report.html"]


def test_the_kept_epoch_and_why_training_ended_are_stated(make_run, tmp_path):
    curves = [EPOCH | {"epoch": epoch, "val_accuracy": 0.5 + 0.05 * epoch} for epoch in (1, 2, 3)]
    chosen = {"epochs": 9, "keep": "best", "patience": 2, "kept_epoch": 1, "ended": "patience"}
    files = render([make_run(curves=curves, **chosen)], tmp_path / "out")
    assert "Weights kept: epoch 1, the best on the validation split" in files["report.md"]
    assert "Training ended: no better epoch on the validation split in 2 epochs" in files["report.md"]
    assert "after epoch 1 test accuracy 55.0 %" in files["report.html"]


def test_augmented_examples_of_no_label_are_refused(make_run):
    folder = write_evaluation(make_run(), augmented=[{"index": 0, "label": 3, "epoch": 0}])
    with pytest.raises(DamagedArtefactError, match='"augmented": expected labels below 3, found 3'):
        read_run(folder)
