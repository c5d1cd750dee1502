"""Early epochs: on the middle of each image, by the same layers, and no measure of how long the others take."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file
from training_runs import run

from pipeline.config import TrainSettings
from pipeline.config.training import MIN_EARLY_SIDE
from pipeline.errors import SettingsError
from pipeline.networks.build import MIN_IMAGE_SIDE, build_model
from pipeline.runs.metrics import WEIGHTS_NAME
from pipeline.runs.throughput import compilation_seconds, compiling_epochs, epoch_seconds
from pipeline.training.early import early_network

EARLY = {"model": "airbench_convnet_small", "recipe": "muon", "epochs": 3, "early_epochs": 2, "early_side": 24}


def settings(**changes):
    return TrainSettings(**EARLY | changes)


@pytest.mark.parametrize("shape", [(32, 32, 3), (33, 40, 1)])
def test_the_early_network_sees_the_middle_by_the_same_layers(shape):
    model = build_model("airbench_convnet_small", shape, 10)
    early = early_network(model, settings(early_side=28))
    assert {id(one) for one in early.variables} == {id(one) for one in model.variables}
    assert (early.input_shape, early.output_shape) == (model.input_shape, model.output_shape)
    images = np.random.default_rng(0).integers(0, 256, (4, *shape), np.uint8)
    alone = build_model("airbench_convnet_small", (28, 28, shape[2]), 10)
    alone.set_weights(model.get_weights())
    top, left = ((side - 28) // 2 for side in shape[:2])
    middle = images[:, top : top + 28, left : left + 28]
    np.testing.assert_allclose(early(images), alone(middle), rtol=1e-5, atol=1e-6)
    assert abs(np.asarray(early(images)) - np.asarray(model(images))).max() > 1e-3


def test_without_early_epochs_there_is_no_such_network():
    assert early_network(build_model("airbench_convnet_small", (32, 32, 3), 10), TrainSettings()) is None


class Own(keras.Model):
    pass


@pytest.mark.parametrize(
    ("make", "side", "words"),
    [
        (lambda: build_model("baseline_cnn", (32, 32, 3), 10), 24, "takes images of 24 pixels a side too, and"),
        (lambda: build_model("airbench_convnet_small", (32, 32, 3), 10), 32, "expected less than the images' 32 pix"),
        (Own, 24, "is no keras.Sequential, nor a functional"),
    ],
)
def test_a_network_that_takes_no_smaller_images_is_refused(make, side, words):
    with pytest.raises(SettingsError, match=words):
        early_network(make(), settings(early_side=side))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"early_epochs": 3}, "early_epochs: expected an integer from 0 to 2, got 3"),
        ({"early_side": 0}, "early_side: expected an integer from 8 to"),
        ({"early_epochs": 0}, "early_side: expected 0, as there are no early_epochs, got 24"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes, words):
    with pytest.raises(SettingsError, match=words):
        settings(**changes)


def test_the_least_side_is_that_of_the_networks():
    assert MIN_EARLY_SIDE == MIN_IMAGE_SIDE


def test_early_epochs_and_the_first_after_them_are_no_measure_of_the_others():
    rows = [{"epoch": at, "train_seconds": one} for at, one in enumerate((3.0, 2.0, 6.0, 4.0, 4.0), start=1)]
    untypical = compiling_epochs({"segments": [{"first_epoch": 1}], "early_epochs": 2})
    assert untypical == {1, 2, 3}
    assert epoch_seconds(rows, untypical) == 4
    assert compilation_seconds(rows, untypical) == 2


@pytest.fixture(scope="module")
def early_run(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "early"
    return folder, run(small_records, folder, **EARLY)


@pytest.mark.slow
def test_a_run_says_what_its_early_epochs_were(early_run):
    _, record = early_run
    assert (record["early_epochs"], record["early_side"]) == (2, 24)
    parts = record["time_breakdown"]
    # 24 of 32 pixels a side, and less where the last pixels of an odd side are left out.
    assert 0.4 < parts["early_step_flops"] / parts["step_flops"] < 0.65
    assert record["device_verified"]


@pytest.mark.slow
@pytest.mark.parametrize("epochs_done", [1, 2])
def test_a_run_resumed_in_or_after_its_early_epochs_ends_with_the_same_weights(
    early_run, small_records, tmp_path, run_killed_after, epochs_done
):
    folder, record = early_run
    run_killed_after(epochs_done, **EARLY)
    again = run(small_records, tmp_path / "again", checkpoints=tmp_path / "checkpoints", **EARLY)
    assert again["epochs_restored"] == epochs_done
    assert again["val_accuracy"] == record["val_accuracy"]
    found, expected = (load_file(one / WEIGHTS_NAME) for one in (tmp_path / "again", folder))
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.slow
def test_training_that_ends_in_its_early_epochs_is_evaluated_on_whole_images(small_records, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.training.loop.has_lost_patience", lambda rows, *_: len(rows) == 1)
    monkeypatch.setattr("pipeline.training.loop.best_epoch", lambda *_: 1)
    record = run(small_records, tmp_path / "a", **EARLY)
    assert record["val_accuracy"] is not None
    assert record["time_breakdown"]["step_seconds"] is None


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"augment": "flip, mixup:0.2"}, {"backend": "jax"}])
def test_early_epochs_train_with_mixed_labels_and_on_jax(small_records, tmp_path, changes):
    record = run(small_records, tmp_path / "a", **EARLY | changes)
    assert record["early_epochs"] == 2
    assert record["val_loss"] < 2.5
