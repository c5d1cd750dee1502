"""Several labels of an image, and numbers: metrics by their definitions, and learning to limits derived beforehand."""

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw
from training_runs import request_for

from pipeline.settings.training import TrainSettings

#: Share of labels that are flipped, and standard deviation of the noise in the numbers.
FLIPPED, NOISE = 0.05, 10.0
NUM_IMAGES = 1_200


def setup_module() -> None:
    global average_precision, best_threshold, determination, fit_linear, with_interval
    from pipeline.problems.classification import average_precision, best_threshold
    from pipeline.problems.image_values.evaluation import determination, with_interval
    from pipeline.training.fine_tuning import fit_linear


scored = st.lists(st.tuples(st.booleans(), st.integers(0, 5)), min_size=1, max_size=30)


@given(scored)
def test_average_precision_is_the_sum_of_precision_by_gained_recall(pairs):
    labels, scores = np.array([label for label, _ in pairs]), np.array([score for _, score in pairs]) / 5
    expected, recall = 0.0, 0.0
    for threshold in sorted({*scores}, reverse=True):
        chosen = scores >= threshold
        hits = (labels & chosen).sum()
        if labels.any():
            expected += hits / chosen.sum() * (hits / labels.sum() - recall)
            recall = hits / labels.sum()
    found = average_precision(labels, scores)
    assert found == pytest.approx(expected) if labels.any() else found is None


def f1(labels, chosen):
    return 2 * (labels & chosen).sum() / max(1, labels.sum() + chosen.sum())


@given(scored)
def test_no_threshold_has_a_greater_f1(pairs):
    labels, scores = np.array([label for label, _ in pairs]), np.array([score for _, score in pairs]) / 5
    threshold = best_threshold(labels, scores)
    best = max(f1(labels, scores >= other) for other in {*scores})
    assert f1(labels, scores >= threshold) == pytest.approx(best) if labels.any() else threshold == 0.5


def test_ninety_five_of_a_hundred_intervals_contain_the_value():
    """R² of a prediction with noise of half the variance is 1 - 0.5. A bootstrap of 200 examples is a little narrow."""
    rng, covered, draws = np.random.default_rng(0), 0, 150
    for _ in range(draws):
        actual = rng.normal(size=200)
        _, low, high = with_interval(determination, actual, actual + rng.normal(0, math.sqrt(0.5), 200))
        covered += low <= 0.5 <= high
    # Three standard errors of a share of 0.93 to 0.95.
    assert 0.88 <= covered / draws <= 1


def test_without_a_variance_there_is_no_determination():
    assert with_interval(determination, np.ones(5), np.arange(5.0)) == [None, None, None]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1_000), st.sampled_from(["softmax", "sigmoid", "identity"]))
def test_a_linear_layer_is_at_the_minimum_of_its_loss(seed, link):
    """The gradient of each loss with decay is zero: mean of (prediction - target) · feature + 0.01 · kernel."""
    rng = np.random.default_rng(seed)
    features, targets = rng.normal(size=(60, 4)).astype(np.float32), rng.integers(0, 2, (60, 3)).astype(np.float32)
    if link == "softmax":
        targets = np.eye(3, dtype=np.float32)[rng.integers(0, 3, 60)]
    weights, metrics = fit_linear(features, targets, link, decay=0.01)
    values = features @ weights[:-1] + weights[-1]
    predicted = {
        "softmax": np.exp(values) / np.exp(values).sum(axis=1, keepdims=True),
        "sigmoid": 1 / (1 + np.exp(-values)),
        "identity": values,
    }[link]
    errors = (predicted - targets) / 60
    assert np.abs(features.T @ errors + 0.01 * weights[:-1]).max() < 0.01
    assert np.abs(errors.sum(axis=0)).max() < 0.01
    if link == "identity":
        assert metrics == {"loss": pytest.approx(((values - targets) ** 2).mean(), rel=1e-3), "accuracy": None}


def test_values_that_the_features_do_not_explain_get_a_large_decay():
    """With as many features as examples, a small decay would fit noise. The best prediction is then the mean."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(100, 100)).astype(np.float32), rng.normal(size=(100, 1)).astype(np.float32)
    weights, metrics = fit_linear(features, targets, "identity")
    assert np.abs(weights[:-1]).max() < 0.01
    assert metrics["loss"] == pytest.approx(1, abs=0.3)
    features, kernel = rng.normal(size=(400, 20)).astype(np.float32), np.linspace(-1, 1, 20, dtype=np.float32)[:, None]
    weights, metrics = fit_linear(features, features @ kernel, "identity")
    np.testing.assert_allclose(weights[:-1], kernel, atol=0.05)


def draw(index):
    """Return an image of up to three marks and a line, the marks, and the angle of the line in degrees."""
    rng = np.random.default_rng(index)
    image = Image.new("RGB", (32, 32), tuple(rng.integers(0, 60, 3).tolist()))
    pen, marks, angle = ImageDraw.Draw(image), rng.random(3) < 0.4, rng.uniform(-80, 80)
    for is_there, shape, place, color in zip(
        marks,
        (pen.ellipse, pen.rectangle, pen.polygon),
        ((2, 2, 12, 12), (18, 3, 28, 13), (5, 29, 15, 29, 10, 19)),
        ((220, 60, 60), (60, 220, 60), (60, 60, 220)),
        strict=True,
    ):
        if is_there:
            shape(place, fill=color)
    x, y = 7 * math.sin(math.radians(angle)), -7 * math.cos(math.radians(angle))
    pen.line((23 - x, 23 - y, 23 + x, 23 + y), fill=(250, 250, 250), width=2)
    return image, marks, angle


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of images with noisy labels and numbers."""
    folder, rng = tmp_path_factory.mktemp("values"), np.random.default_rng(1)
    with (folder / "table.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "labels", "disc", "square", "triangle", "angle"))
        for index in range(NUM_IMAGES):
            image, marks, angle = draw(index)
            image.save(folder / f"{index:04d}.png")
            marks = marks ^ (rng.random(3) < FLIPPED)
            names = [name for name, is_there in zip(("disc", "square", "triangle"), marks, strict=True) if is_there]
            number = f"{angle + rng.normal(0, NOISE):.3f}"
            rows.writerow((f"{index:04d}.png", ";".join(names), *map(int, marks), number))
    return folder / "table.csv"


def trained(write_records_of, table, folder, source, **options):
    from pipeline.training.train import train

    records = write_records_of(table, source={"dataset": "table", **source}, validation_share=0.2).folder
    options = {
        "model": "baseline_cnn",
        "training_recipe": "onecycle",
        "augment": "",
        "test_time_augmentation": "none",
    } | options
    request = request_for(records, folder, **{"epochs": 10, "global_batch_size": 32, "initial_weights": ""} | options)
    folder.mkdir()
    record = train(request, folder)
    return record, json.loads((folder / "evaluation.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize(
    "source", [{"label_column": "labels", "label_separator": ";"}, {"label_column": "disc,square,triangle"}]
)
def test_labels_are_learned_up_to_their_noise(write_records_of, table, tmp_path, source):
    """A right model errs on 5% of the decisions. Of 720, the standard error is 0.8%."""
    record, facts = trained(write_records_of, table, tmp_path / "run", source)
    assert (record.problem, record.outputs, facts["thresholds_of"]) == ("multi_label", "probabilities", "validation")
    assert record.test_accuracy == pytest.approx(1 - FLIPPED, abs=0.03)
    # Of all images, 0.41 have the label, 0.40 its mark, and 0.38 both. The rest of the labels has no better order.
    assert facts["macro_f1"] == pytest.approx(2 * 0.38 / (0.41 + 0.40), abs=0.04)
    precision, recall = 0.38 / 0.40, 0.38 / 0.41
    assert facts["mean_average_precision"] == pytest.approx(precision * recall + 0.41 * (1 - recall), abs=0.04)
    assert facts["exact_matches"] == pytest.approx((1 - FLIPPED) ** 3, abs=0.07)
    assert [label["examples"] for label in facts["labels"]] == pytest.approx(
        [0.41 * facts["num_examples"]] * 3, rel=0.35
    )


@pytest.mark.slow
def test_numbers_are_learned_up_to_their_noise(write_records_of, table, tmp_path):
    """A right model has the root mean squared error of the noise. R² is 1 - 100 / (160² / 12 + 100), that is 0.955."""
    record, facts = trained(write_records_of, table, tmp_path / "run", {"label_column": "angle"}, epochs=15)
    (value,) = facts["values"]
    assert (record.problem, record.outputs, record.test_accuracy) == ("regression", "values", None)
    assert value["rmse"][0] == pytest.approx(NOISE, rel=0.25)
    assert value["r2"][0] == pytest.approx(1 - NOISE**2 / (160**2 / 12 + NOISE**2), abs=0.03)
    assert value["mae"][0] == pytest.approx(NOISE * math.sqrt(2 / math.pi), rel=0.25)
    assert record.test_loss == pytest.approx((value["rmse"][0] / value["deviation"]) ** 2, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["angle", "disc,square,triangle"])
def test_a_model_that_does_not_see_the_image_fails_these_limits(write_records_of, table, tmp_path, monkeypatch, column):
    activation = None if column == "angle" else "sigmoid"
    name = f"blind_{'angle' if activation is None else 'labels'}"
    (tmp_path / f"{name}.py").write_text(
        "import keras\n\n\n"
        "def build(shape, labels):\n"
        "    layers = keras.layers\n"
        "    images = keras.Input(shape, dtype='uint8')\n"
        "    nothing = layers.Rescaling(0.0)(layers.GlobalAveragePooling2D()(layers.Rescaling(1.0)(images)))\n"
        f"    return keras.Model(images, layers.Dense(labels, activation={activation!r})(nothing))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    source = {"label_column": column}
    _, facts = trained(write_records_of, table, tmp_path / "run", source, model=f"{name}:build", epochs=3)
    if column == "angle":
        assert facts["values"][0]["r2"][0] < 0.05
    else:
        assert facts["accuracy"] < 0.75
        assert facts["mean_average_precision"] < 0.55


def test_a_number_that_is_constant_in_the_train_split_has_no_deviation(write_records_of, tmp_path):
    """The mean of many 0.1 differs from 0.1 in the last digits."""
    from pipeline.problems import problem_of_records

    with (tmp_path / "table.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "x", "split"))
        for index in range(23):
            Image.new("RGB", (8, 8), (index, 0, 0)).save(tmp_path / f"{index}.png")
            rows.writerow((f"{index}.png", 0.1 if index < 20 else 0.5, "train" if index < 20 else "test"))
    source = {"dataset": "table", "label_column": "x", "split_column": "split"}
    manifest = write_records_of(tmp_path / "table.csv", source=source).manifest
    assert manifest["deviations"] == [0.0]
    task = problem_of_records(manifest).task(manifest)
    assert task.deviations == (1.0,)


@pytest.mark.parametrize(
    ("meaning", "activation", "said"),
    [
        ("labels", "softmax", "several labels need a last layer with the activation sigmoid or linear, not softmax"),
        ("values", "sigmoid", "numbers need a last layer with the activation linear, not sigmoid"),
        ("values", "relu", "not relu"),
    ],
)
def test_a_last_layer_that_cannot_give_the_answers_is_refused(tmp_path, monkeypatch, meaning, activation, said):
    from pipeline.errors import SettingsError
    from pipeline.models.build import build_for_task
    from pipeline.records.features import Task

    name = f"{meaning}_{activation}"
    (tmp_path / f"{name}.py").write_text(
        "import keras\n\n\ndef build(shape, labels):\n"
        "    layers = [keras.Input(shape, dtype='uint8'), keras.layers.Rescaling(1 / 255), keras.layers.Flatten()]\n"
        f"    return keras.Sequential([*layers, keras.layers.Dense(labels, activation={activation!r})])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SettingsError, match=said):
        build_for_task(Task((8, 8, 3), 256, (), 3, meaning, (0.0,) * 3, (1.0,) * 3), f"{name}:build", "float32")


@pytest.mark.parametrize(
    ("options", "said"),
    [({"augment": "mixup:0.2"}, "no mixup"), ({"label_smoothing": 0.1}, "label_smoothing: expected 0")],
)
def test_settings_for_one_label_are_refused(options, said):
    from pipeline.errors import SettingsError
    from pipeline.problems import problem_class

    with pytest.raises(SettingsError, match=said):
        problem_class("multi_label")().check(TrainSettings(**options))
