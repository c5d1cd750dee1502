"""What a network takes from the train split: before training, from train alone, the same after a resume and on JAX."""

import numpy as np
import pytest
from own_package import forget, write_package
from training_runs import QUICKLY_COMPILED, run, train_until

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError
from pipeline.problems.problem import open_split
from pipeline.runs.initial_weights import find_initial_weights
from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, WEIGHTS_NAME, read_metrics


def setup_module() -> None:
    global InputStream, Split, keras, load_file, whitening_filters
    import keras
    from safetensors.numpy import load_file

    from pipeline.models.airbench_convnet import whitening_filters
    from pipeline.streams.tf_data import InputStream, Split


WHITENED = {"model": "airbench_convnet_small", "augment": "alternating_flip, crop:2", "epochs": 1}
STANDARDIZED = """
import keras
import numpy as np

def build(image_shape, num_labels):
    layers = keras.layers
    return keras.Sequential([keras.Input(image_shape, dtype="uint8"), layers.Normalization(name="standard"),
                             layers.Conv2D(4, 3, strides=2, name="conv"), layers.GlobalAveragePooling2D(name="mean"),
                             layers.Dense(num_labels, name="logits", dtype="float32")])

def standardize(model, inputs):
    assert inputs.dtype == "uint8"
    model.get_layer("standard").adapt(inputs.astype("float32"))

build.adapt = standardize

def broken(image_shape, num_labels):
    return build(image_shape, num_labels)

broken.adapt = lambda model, inputs: model.get_layer("absent")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield write_package(tmp_path, standardized=STANDARDIZED)
    forget()


def train_images(records):
    stream = InputStream(open_split(records, read_manifest(records), "train"), global_batch_size=64, seed=0)
    return np.concatenate([images for images, _ in stream.evaluation().as_numpy_iterator()])


@pytest.fixture(scope="module")
def whitened(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whitened"
    return folder, run(small_records, folder, **WHITENED)


@pytest.mark.slow
def test_the_first_layer_whitens_the_train_split(whitened, small_records):
    folder, record = whitened
    assert record["beginning"] == {
        "taken": [],
        "left": {},
        "frozen": [],
        "features": "",
        "adapted_examples": 403,
    }
    kernel, _ = whitening_filters(train_images(small_records), 2, scale=1 / 64, offset=-2)
    np.testing.assert_array_equal(load_file(folder / WEIGHTS_NAME)["whiten/kernel"], kernel)


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_weights(package, small_records, tmp_path):
    own = {"model": "my_package.standardized:build"}
    run(small_records, tmp_path / "whole", **own)
    train_until(1, small_records, tmp_path, **own)
    resumed = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", **own)
    assert resumed["epochs_restored"] == 1
    whole, again = ((tmp_path / name / WEIGHTS_NAME).read_bytes() for name in ("whole", "resumed"))
    assert whole == again


@pytest.mark.slow
def test_the_same_seed_begins_alike_on_jax(whitened, small_records, tmp_path, monkeypatch):
    for name, value in QUICKLY_COMPILED.items():
        monkeypatch.setenv(name, value)
    record = run(small_records, tmp_path / "jax", backend="jax", **WHITENED)
    assert record["beginning"]["adapted_examples"] == 403
    kernels = [load_file(folder / WEIGHTS_NAME)["whiten/kernel"] for folder in (whitened[0], tmp_path / "jax")]
    np.testing.assert_array_equal(*kernels)
    losses = [read_metrics(folder / METRICS_NAME)[0]["loss"] for folder in (whitened[0], tmp_path / "jax")]
    np.testing.assert_allclose(*losses, rtol=0.02)


@pytest.mark.slow
def test_a_layer_that_takes_initial_weights_keeps_nothing_of_the_data(package, small_records, tmp_path):
    own = {"model": "my_package.standardized:build", "epochs": 1}
    record = run(small_records, tmp_path / "a", **own)
    assert record["beginning"]["adapted_examples"] == 403
    pixels = train_images(small_records).astype(np.float64)
    first = load_file(tmp_path / "a" / WEIGHTS_NAME)
    np.testing.assert_allclose(first["standard/mean"].ravel(), pixels.mean(axis=(0, 1, 2)), rtol=1e-3)
    loaded = keras.saving.load_model(tmp_path / "a" / MODEL_NAME).get_layer("standard")
    np.testing.assert_allclose(keras.ops.convert_to_numpy(loaded.mean).ravel(), first["standard/mean"].ravel())

    other = {**first, "standard/mean": first["standard/mean"] + 7}
    from safetensors.numpy import save_file

    save_file(other, tmp_path / "other.safetensors")
    initial = find_initial_weights(str(tmp_path / "other.safetensors"), tmp_path)
    settings = {**own, "initial_weights": str(tmp_path / "other.safetensors")}
    again = run(small_records, tmp_path / "b", initial=initial, **settings)
    assert "standard" in again["beginning"]["taken"]
    np.testing.assert_array_equal(load_file(tmp_path / "b" / WEIGHTS_NAME)["standard/mean"], other["standard/mean"])


@pytest.mark.slow
def test_failures_name_the_setting(package, small_records, tmp_path):
    words = r"\[Train\] model: .*standardized:broken.*<lambda>\(<Sequential.*, uint8 \(403, 32"
    with pytest.raises(SettingsError, match=words):
        run(small_records, tmp_path / "a", model="my_package.standardized:broken", epochs=1)
