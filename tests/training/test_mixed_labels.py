"""Training on mixed labels: the loss is that of the mixed label, evaluation's that of plain ones."""

import numpy as np
import pytest
from training_runs import SETTINGS, run

from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, read_metrics
from pipeline.settings.training import RECIPES


def setup_module() -> None:
    global Crossentropy, build_model, keras, mixed_accuracy, mixed_loss
    import keras

    from pipeline.models.build import build_model
    from pipeline.models.model import Crossentropy
    from pipeline.training.model import mixed_accuracy, mixed_loss


@pytest.mark.parametrize(("training_recipe", "smoothing"), [("baseline", 0.0), ("onecycle", 0.1)])
def test_the_loss_is_that_of_the_mixed_label(training_recipe, smoothing, rng):
    probabilities = rng.dirichlet(np.ones(10), 4).astype(np.float32)
    first, second, share = np.array([0, 3, 5, 9]), np.array([1, 3, 2, 0]), np.array([1.0, 0.5, 0.25, 0.0], np.float32)
    mixed = np.stack([first, second, share], axis=1).astype(np.float32)
    one_hot = share[:, None] * np.eye(10)[first] + (1 - share[:, None]) * np.eye(10)[second]
    expected = keras.losses.categorical_crossentropy(one_hot, probabilities, label_smoothing=smoothing)
    loss = mixed_loss(Crossentropy(label_smoothing=RECIPES.load(training_recipe).label_smoothing))
    np.testing.assert_allclose(loss(keras.ops.convert_to_tensor(mixed), probabilities), expected, rtol=1e-5)
    plain = loss.of_plain(first, keras.ops.convert_to_tensor(probabilities))
    np.testing.assert_array_equal(loss(first, keras.ops.convert_to_tensor(probabilities)), plain)


def test_right_is_who_names_the_greater_part():
    probabilities = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    metric = mixed_accuracy()
    metric.update_state(np.array([[0, 1, 0.7], [0, 1, 0.2], [2, 1, 0.4]], np.float32), probabilities)
    assert float(metric.result()) == pytest.approx(2 / 3)
    metric.reset_state()
    metric.update_state(np.array([0, 1, 1]), probabilities)
    assert float(metric.result()) == pytest.approx(2 / 3)


@pytest.mark.slow
def test_a_run_with_every_operation_learns_and_is_evaluated_on_plain_images(small_records, tmp_path):
    every = "flip, crop:4, translate:0.1, random_resized_crop:0.35, color:0.2, cutout:8, mixup:0.2"
    record = run(small_records, tmp_path / "a", epochs=4, augment=every)
    assert record["augment"] == every
    rows = read_metrics(tmp_path / "a" / METRICS_NAME)
    assert rows[-1]["loss"] < rows[0]["loss"]
    model = keras.saving.load_model(tmp_path / "a" / MODEL_NAME, safe_mode=True)
    # Augmentation is no part of the network.
    assert len(model.layers) == len(build_model(SETTINGS["model"], (32, 32, 3), 10).layers)


@pytest.mark.slow
def test_the_output_kind_is_detected_despite_mixed_labels(small_records, tmp_path):
    record = run(small_records, tmp_path / "a", epochs=1, augment="mixup:0.2")
    assert record["outputs"] == "logits"
