"""Fine-tuning: the last layer by logistic regression on the outputs of the others, then all layers if requested.

A tiny model stands for a pretrained one.
"""

import json
import shutil

import numpy as np
import pytest
from luigi_process import FAST
from training_runs import SETTINGS, run, train_until

from pipeline.errors import SettingsError
from pipeline.runs.initial_weights import find_initial_weights
from pipeline.runs.metrics import METRICS_NAME, WEIGHTS_NAME, compilation_seconds, read_metrics
from pipeline.settings.training import PRETRAINED, TrainSettings

MODEL = SETTINGS["model"]


def setup_module() -> None:
    global begin, build_model, keras, load_file, fit_linear, named_weights, save_file
    import keras
    from safetensors.numpy import load_file, save_file

    from pipeline.models.build import build_model
    from pipeline.training.fine_tuning import fit_linear
    from pipeline.training.model import begin, named_weights


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Weights that stand for pretrained ones."""
    file = tmp_path_factory.mktemp("weights") / "first.safetensors"
    keras.utils.set_random_seed(5)
    save_file(named_weights(build_model(MODEL, (32, 32, 3), 10)), file)
    return file


@pytest.fixture
def pretrained(first, monkeypatch):
    """The tiny model's pretrained weights, which a run gets by these arguments."""
    monkeypatch.setitem(PRETRAINED, MODEL, ("no-distribution", "no_file"))
    return {"initial_weights": str(first), "initial": find_initial_weights(str(first), first.parent)}


def changed_layers(first, folder):
    before, after = load_file(first), load_file(folder / WEIGHTS_NAME)
    return {name.partition("/")[0] for name in before if not np.array_equal(before[name], after[name])}


def test_logistic_regression_finds_the_minimum():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(300, 5)).astype(np.float32), rng.integers(0, 3, 300).astype(np.int32)
    features[:, 0] += labels
    weights, metrics = fit_linear(features, np.eye(3, dtype=np.float32)[labels], "softmax")
    assert weights.shape == (6, 3)

    def loss(weights):
        logits = features @ weights[:-1] + weights[-1]
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        return -np.log(shares[np.arange(300), labels]).mean() + 5e-3 * (weights[:-1] ** 2).sum()

    least = loss(weights.astype(float))
    assert all(loss(weights + 0.01 * rng.normal(size=weights.shape)) > least for _ in range(50))
    correct = (features @ weights[:-1] + weights[-1]).argmax(axis=1) == labels
    assert metrics["accuracy"] == correct.mean()
    assert metrics["loss"] == pytest.approx(least - 5e-3 * (weights[:-1] ** 2).sum(), rel=1e-5)


def test_head_fits_the_last_layer_and_head_then_full_goes_on_from_there(small_records, first, pretrained, tmp_path):
    """At a tiny learning rate, the epoch changes every layer a little."""
    head = run(small_records, tmp_path / "head", epochs=1, fine_tune="head", **pretrained)
    assert changed_layers(first, tmp_path / "head") == {"logits"}
    assert head["beginning"]["frozen"] == ["convolution"]
    assert head["num_trainable_parameters"] == 64 * 10 + 10
    assert head["device_verified"]
    assert "trained no epoch" in head["time_breakdown"]["not_measured"]
    # Another seed has other weights of the last layer to begin with.
    both = run(small_records, tmp_path / "both", epochs=1, learning_rate=1e-6, seed=1, **pretrained)
    assert changed_layers(first, tmp_path / "both") == {"convolution", "logits"}
    assert both["beginning"]["frozen"] == []
    assert both["test_loss"] == pytest.approx(head["test_loss"], rel=1e-3)
    (row,) = read_metrics(tmp_path / "both" / METRICS_NAME)
    assert 0 < row["head_seconds"] < row["train_seconds"]


@pytest.mark.slow
def test_full_trains_from_the_seeded_last_layer(small_records, pretrained, tmp_path):
    losses = [
        run(small_records, tmp_path / how, epochs=1, learning_rate=1e-6, fine_tune=how, **pretrained)["test_loss"]
        for how in ("head_then_full", "full")
    ]
    assert losses[1] != pytest.approx(losses[0], rel=1e-3)


@pytest.mark.slow
def test_a_resumed_run_does_not_fit_the_last_layer_again(small_records, pretrained, tmp_path):
    whole = run(small_records, tmp_path / "whole", **pretrained)
    train_until(1, small_records, tmp_path, **pretrained)
    resumed = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", **pretrained)
    assert resumed["epochs_restored"] == 1
    assert resumed["test_loss"] == whole["test_loss"]


def test_the_time_of_the_last_layer_is_no_compilation():
    rows = [{"epoch": 1, "train_seconds": 9.0, "head_seconds": 5.0}, {"epoch": 2, "train_seconds": 3.0}]
    assert compilation_seconds(rows, {1}) == 1.0


def test_batch_normalization_of_a_pretrained_model_keeps_its_statistics(tmp_path):
    model = "efficientnet_lite0"
    options, initial = TrainSettings(model=model), find_initial_weights("", tmp_path, model)
    built = build_model(model, (16, 16, 3), 5)
    beginning = begin(built, options, initial, None)
    assert beginning["left"] == {"logits": "missing logits/kernel"}
    assert {*beginning["frozen"]} == {name for name in beginning["taken"] if name.endswith("bn")}
    normalization = built.get_layer("block4b_bn")
    images = keras.ops.convert_to_tensor(np.random.default_rng(0).normal(size=(2, 3, 3, 480)).astype(np.float32))
    np.testing.assert_array_equal(normalization(images, training=True), normalization(images, training=False))
    random = begin(build_model(model, (16, 16, 3), 5), TrainSettings(model=model, initial_weights="random"), None, None)
    assert random is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"fine_tune": "head", "model": "baseline_cnn"},
            "[Train] fine_tune: expected head_then_full, unless a model is pretrained",
        ),
        (
            {"fine_tune": "full", "model": "efficientnet_lite0", "initial_weights": "random"},
            "[Train] fine_tune: expected head_then_full, unless a model is pretrained",
        ),
        ({"fine_tune": "head", "epochs": 2}, "[Train] epochs: expected 1, as fine_tune = head"),
        (
            {"fine_tune": "head", "model": "efficientnet_lite0", "epochs": 1, "augment": "flip"},
            "[Train] augment: expected nothing, as fine_tune = head",
        ),
    ],
)
def test_settings_that_do_not_fit_the_part_to_train_are_refused(settings, words):
    with pytest.raises(SettingsError) as refusal:
        TrainSettings(**settings)
    assert words in str(refusal.value)


@pytest.mark.slow
def test_a_pretrained_model_in_the_whole_pipeline(first_run, tmp_path):
    luigi = first_run.copy(tmp_path / "fine")
    args = [*FAST, "--Train-model", "efficientnet_lite0", "--Train-training-recipe", "fine_tuning"]
    args += ["--Train-fine-tune", "head"]
    done = luigi(*args)
    assert done.returncode == 0, done.stderr
    (run_name,) = (name for name in luigi.artifacts("runs") if name.startswith("efficientnet"))
    folder = luigi.root / "runs" / run_name
    record = json.loads((folder / "run.json").read_text())
    assert record["initial_weights_digest"] == find_initial_weights("", tmp_path, "efficientnet_lite0").digest
    assert (record["precision"], record["initial_run"]) == ("float32", None)
    identity = json.loads((folder / "manifest.json").read_text())["identity"]
    assert identity["upstream"]["initial_weights"] == record["initial_weights_digest"]
    assert "scipy" in identity["packages"]
    assert "ImageNet, sha256 579344248a93" in (luigi.root / "report" / "report.html").read_text()
    # The reasons compare with the run that differs least.
    for other in (luigi.root / "runs").glob("baseline_cnn-*"):
        shutil.rmtree(other)
    status = luigi.status(*args, "--Train-initial-weights", "random", "--Train-fine-tune", "head_then_full")
    assert "initial weights removed" in status["Train"]["reasons"]
