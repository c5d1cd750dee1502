"""Fine-tuning: the layers that fit take the weights of a run or a file, the others are named, frozen ones stay."""

import re
import zipfile

import numpy as np
import pytest
from own_package import forget, write_package
from training_runs import SETTINGS

from pipeline.artifacts.manifest import write_manifest
from pipeline.errors import SettingsError
from pipeline.runs.initial_weights import find_initial_weights
from pipeline.runs.metrics import MODEL_NAME, WEIGHTS_NAME
from pipeline.runs.record import Beginning
from pipeline.settings.training import TrainSettings
from pipeline.training.launch import TrainRequest


def setup_module() -> None:
    global begin, keras, load_file, build_model, save_file, train
    import keras
    from safetensors.numpy import load_file, save_file

    from pipeline.models.build import build_model
    from pipeline.training.model import begin
    from pipeline.training.train import train


def run(records, folder, **settings):
    folder.mkdir()
    options = TrainSettings(**{**SETTINGS, "epochs": 1, **settings})
    given = options.initial_weights
    request = TrainRequest(
        records=records,
        settings=options,
        requested_dataset="cifar10",
        fingerprint="f" * 64,
        checkpoints=folder.with_name(f"{folder.name}-checkpoints"),
        initial=find_initial_weights(given, folder.parent) if given else None,
    )
    return train(request, folder)


@pytest.fixture(scope="module")
def first(small_records, tmp_path_factory):
    """A run as the stage publishes it."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    run(small_records, folder)
    write_manifest(folder, stage="Train", identity={"test": True}, details={})
    return folder


def weights(folder):
    return load_file(folder / WEIGHTS_NAME)


def beginning(folder, model="tests.tiny_model:build", **settings):
    """What a new model begins with under these settings. Nothing is trained."""
    options = TrainSettings(**{**SETTINGS, "model": model, **settings})
    given = options.initial_weights
    initial = find_initial_weights(given, folder) if given else None
    return Beginning(**begin(build_model(model, (32, 32, 3), 10), options, initial, None))


def test_a_run_begins_with_the_weights_of_another_and_keeps_the_frozen_ones(first, small_records, tmp_path):
    record = run(small_records, tmp_path / "a", initial_weights=str(first), freeze="conv.*", seed=3)
    assert record.beginning.taken == ("convolution", "logits")
    assert (record.beginning.left, record.beginning.frozen) == ({}, ("convolution",))
    assert record.initial_run == find_initial_weights("first", first.parent).run
    before, after = weights(first), weights(tmp_path / "a")
    assert {key for key in before if np.array_equal(before[key], after[key])} == {"convolution/kernel"}


def test_a_run_its_model_and_its_weights_are_one_beginning(first, tmp_path):
    beginnings = [beginning(tmp_path, initial_weights=str(first / name)) for name in ("", MODEL_NAME, WEIGHTS_NAME)]
    assert {one.taken for one in beginnings} == {("convolution", "logits")}
    assert [one.left for one in beginnings] == [{}] * 3


@pytest.mark.slow
def test_the_saved_model_of_a_run_with_frozen_layers_can_be_trained_whole(small_records, tmp_path):
    run(small_records, tmp_path / "a", model="mnist_dense", freeze="hidden")
    assert all(layer.trainable for layer in keras.saving.load_model(tmp_path / "a" / MODEL_NAME).layers)


def test_a_layer_of_another_shape_keeps_its_own_and_is_named(first, tmp_path):
    for name, kernel, words in (
        (
            "narrow",
            np.zeros((64, 4), np.float32),
            "logits/kernel has the shape (64, 10) in the model and (64, 4) in the file",
        ),
        ("without", None, "missing logits/kernel"),
    ):
        stored, file = weights(first), tmp_path / f"{name}.safetensors"
        del stored["logits/kernel"]
        save_file(stored if kernel is None else stored | {"logits/kernel": kernel}, file)
        found = beginning(tmp_path, initial_weights=str(file))
        assert (found.taken, found.left) == (("convolution",), {"logits": words})
        assert find_initial_weights(str(file), tmp_path).run is None


def test_a_backbone_inside_a_network_of_ones_own_is_frozen_by_its_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    write_package(tmp_path)
    forget()
    (frozen,) = beginning(tmp_path, "my_package.networks:sure", freeze="inner").frozen
    # Keras counts the layers of the session.
    assert re.fullmatch(r"inner/conv2d(_\d+)?", frozen)
    forget()


def test_the_content_counts_and_not_the_path(first, tmp_path):
    digests = set()
    for name in (WEIGHTS_NAME, "copy.safetensors"):
        path = tmp_path / name
        path.write_bytes((first / WEIGHTS_NAME).read_bytes())
        digests.add(find_initial_weights(str(path), tmp_path).digest)
    assert digests == {find_initial_weights("first", first.parent).digest}
    model = build_model("baseline_cnn", (32, 32, 3), 10)
    saved = []
    for name in ("a.keras", "b.keras"):
        model.save(tmp_path / name)
        saved.append(find_initial_weights(str(tmp_path / name), tmp_path).digest)
    # A date is in each.
    assert saved[0] == saved[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"initial_weights": "not_there"}, "expected the folder of a run with weights, or a file that ends in .keras"),
        ({"initial_weights": "empty"}, "is no run with weights"),
        ({"initial_weights": "{}/broken.keras"}, "cannot be read"),
        ({"initial_weights": "{}/broken.safetensors"}, "cannot read"),
        ({"initial_weights": "{}/other.safetensors"}, "fits no layer of tests.tiny_model:build"),
        (
            {"freeze": "conv"},
            "'conv' matches no whole name of a layer. Pass a regular expression for convolution, logits",
        ),
        ({"freeze": ".*"}, "a regular expression that leaves a layer to train"),
    ],
)
def test_invalid_initial_weights_are_refused(tmp_path, settings, words):
    (tmp_path / "empty").mkdir()
    for name in ("broken.keras", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"no weights")
    save_file({"dense/kernel": np.zeros(3, np.float32)}, tmp_path / "other.safetensors")
    with pytest.raises(SettingsError) as refusal:
        beginning(tmp_path, **{name: text.format(tmp_path) for name, text in settings.items()})
    assert f"[Train] {next(iter(settings))}: " in str(refusal.value)
    assert words in str(refusal.value)


def test_a_file_that_changed_since_its_digest_was_taken_is_refused(first, tmp_path):
    path = tmp_path / "weights.safetensors"
    path.write_bytes((first / WEIGHTS_NAME).read_bytes())
    initial = find_initial_weights(str(path), tmp_path)
    save_file({"dense/kernel": np.zeros(3, np.float32)}, path)
    options = TrainSettings(**SETTINGS, initial_weights=str(path))
    with pytest.raises(SettingsError, match="has changed"):
        begin(build_model(options.model, (32, 32, 3), 10), options, initial, None)


def test_a_keras_file_is_an_archive_whose_metadata_do_not_count(tmp_path):
    digests = []
    for version in ("1", "2"):
        with zipfile.ZipFile(tmp_path / "x.keras", "w") as archive:
            archive.writestr("metadata.json", version)
            archive.writestr("model.weights.h5", "weights")
        digests.append(find_initial_weights(str(tmp_path / "x.keras"), tmp_path).digest)
    assert digests[0] == digests[1]
