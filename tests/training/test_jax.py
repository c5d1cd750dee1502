"""Training on JAX: the same curve, receipt, resume and files as on TensorFlow, from a process of its own."""

import contextlib
import logging
import os
import shutil
import subprocess
import sys

import numpy as np
import psutil
import pytest
from training_runs import QUICKLY_COMPILED, run

from pipeline import progress
from pipeline.errors import HardwareMismatchError, SettingsError, WorkerDiedError
from pipeline.problems.problem import open_split
from pipeline.runs.initial_weights import find_initial_weights
from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, WEIGHTS_NAME, read_metrics
from pipeline.stage_process import IN_PROCESS


def setup_module() -> None:
    global Split, keras, load_file
    import keras
    from safetensors.numpy import load_file

    from pipeline.streams.tf_data import Split


pytestmark = pytest.mark.slow

# One run takes ten seconds of imports.
PLAIN = {"model": "backend_network:build", "training_recipe": "adam", "epochs": 2}


@pytest.fixture(autouse=True)
def quickly_compiled(monkeypatch):
    """What a test trains itself is compiled sooner; ``runs`` is compiled as for users. This process draws weights."""
    monkeypatch.setenv(IN_PROCESS, "1")
    for name, value in QUICKLY_COMPILED.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def runs(small_records, tmp_path_factory):
    """Backend → folder and record of the same training."""
    folder = tmp_path_factory.mktemp("backends")
    return {
        backend: (folder / backend, run(small_records, folder / backend, backend=backend, **PLAIN))
        for backend in ("tensorflow", "jax")
    }


def test_the_same_seed_gives_the_same_curve_on_both_backends(runs):
    curves = {name: [row["loss"] for row in read_metrics(folder / METRICS_NAME)] for name, (folder, _) in runs.items()}
    assert len(curves["jax"]) == 2
    # Sums are added up in another order; Adam divides by their square roots.
    np.testing.assert_allclose(curves["jax"], curves["tensorflow"], rtol=1e-3)
    weights = {name: load_file(folder / WEIGHTS_NAME) for name, (folder, _) in runs.items()}
    assert weights["jax"].keys() == weights["tensorflow"].keys()
    for name, weight in weights["tensorflow"].items():
        np.testing.assert_allclose(weights["jax"][name], weight, atol=5e-3)


def test_the_receipt_says_what_jax_computed_on(runs):
    _, record = runs["jax"]
    receipt = record["receipt"]
    assert (record["backend"], record["requested_backend"], receipt["backend"]) == ("jax", "jax", "jax")
    assert (record["effective_device"], record["device_verified"], record["jit_compile"]) == ("cpu", True, True)
    assert receipt["placement"] == {
        "variable_devices": ["cpu:0"],
        "computation_devices": ["cpu:0"],
        "observed": "train_function",
    }
    assert receipt["logical_devices"] == ["cpu:0"]
    assert {"jax", "jaxlib", "tensorflow", "keras"} <= set(receipt["versions"])
    assert receipt["topology"]["process_count"] == 1
    assert 1e7 < receipt["probe"]["convolution_flops_per_second"] < 1e16
    assert record["time_breakdown"]["step_alone_seconds"] > 0


def test_the_operations_of_a_step_are_counted_on_both_backends(runs):
    # Of a 3×3 convolution of 8 filters on 32×32 pixels of 3 channels and a dense layer of 512 × 10: forwards, and
    # backwards to the weights of both and the inputs of the second.
    convolution, dense = 2 * 32 * 32 * 9 * 3 * 8, 2 * 512 * 10
    step = 32 * (2 * convolution + 3 * dense)
    counted = {name: record["time_breakdown"]["step_flops"] for name, (_, record) in runs.items()}
    # Beside them the elementwise ones of normalization, pooling and Adam; XLA leaves out what padding multiplies.
    assert 0.8 * step < counted["jax"] < 1.4 * step
    # TensorFlow counts the gradient of the images too, before it finds out that nobody asks for it.
    assert step < counted["tensorflow"] < 1.2 * (step + 32 * convolution)


def test_the_bytes_of_a_step_are_those_of_the_step_as_it_is_compiled(runs, small_records):
    batch, images = 32 * 32 * 32 * 3, 32 * 32 * 32 * 8
    found = {name: record["time_breakdown"]["step_bytes"] for name, (_, record) in runs.items()}
    # What the convolution gives is float32, kept for the way back and read there; a dozen operations read and write it.
    assert batch + 2 * 4 * images < found["jax"] < 40 * 4 * images
    assert found["tensorflow"] is None


def test_a_step_that_xla_does_not_count_has_no_figure():
    # As XLA answers for a device that a plugin brings, which GPUs and TPUs are.
    code = """
import jax, keras, numpy as np
from pipeline.hardware.jax import RUNTIME
model = keras.Sequential([keras.layers.Dense(4)])
model.compile("sgd", "mse")
batch = np.ones([8, 3], np.float32), np.ones([8, 4], np.float32)
model.fit(*batch, verbose=0)
print(RUNTIME.step_flops(model, batch) > 2 * 8 * 3 * 4, RUNTIME.step_bytes(model, batch) > 4 * (8 * 3 + 8 * 4))
loop = keras.Sequential([keras.Input((5, 3)), keras.Sequential([keras.layers.LSTM(4)])])
loop.compile("sgd", "mse")
loop.optimizer.build(loop.trainable_variables)
looped = np.ones([8, 5, 3], np.float32), batch[1]
print(RUNTIME.step_flops(loop, looped), RUNTIME.step_bytes(loop, looped))
jax.stages.Lowered.cost_analysis = jax.stages.Compiled.cost_analysis = lambda lowered: None
print(RUNTIME.step_flops(model, batch), RUNTIME.step_bytes(model, batch))
"""
    command = [sys.executable, "-c", code]
    env = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=300)
    assert done.stdout.split() == ["True", "True", *["None"] * 4], done.stderr


def test_the_model_that_jax_trained_predicts_the_same_on_tensorflow(runs, small_records):
    folder, record = runs["jax"]
    from pipeline.artifacts.manifest import read_manifest

    test = open_split(small_records, read_manifest(small_records), "test")
    from pipeline.streams.tf_data import InputStream

    model = keras.saving.load_model(folder / MODEL_NAME, compile=False)
    right, seen = 0, 0
    for images, labels in InputStream(test, global_batch_size=50, seed=0).evaluation().as_numpy_iterator():
        right += int((model.predict_on_batch(images).argmax(axis=1) == labels).sum())
        seen += len(labels)
    assert right / seen == pytest.approx(record["test_accuracy"])


def test_the_run_that_jax_trained_is_exported_to_every_form(runs, small_records, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="the optional packages of export are not installed")
    from pipeline.runs import export
    from pipeline.settings.training import EXPORTERS

    folder, record = runs["jax"]
    tmp_path.joinpath("exported").mkdir()
    forms = export.export(
        folder, small_records, tmp_path / "exported", formats=EXPORTERS.builtin, calibration_examples=50
    )["forms"]
    for name in ("SavedModel", "LiteRT float32", "ONNX", "OpenVINO"):
        assert forms[name]["agreement"] == 1
        assert forms[name]["accuracy"] == pytest.approx(record["test_accuracy"])
        assert forms[name]["largest_difference"] < 1e-5
    assert "LiteRT int8" in forms


def test_several_replicas_train_to_the_same_weights_batch_normalization_included(runs, small_records, tmp_path):
    # Under TensorFlow's strategies each replica normalizes by its own part of the batch; here by all of it.
    one = load_file(runs["jax"][0] / WEIGHTS_NAME)
    record = run(small_records, tmp_path / "a", backend="jax", replicas=4, **PLAIN)
    assert (record["num_replicas"], record["device_verified"]) == (4, True)
    assert record["receipt"]["placement"]["computation_devices"] == [f"cpu:{number}" for number in range(4)]
    assert record["test_accuracy"] == pytest.approx(runs["jax"][1]["test_accuracy"], abs=0.02)
    for name, weight in load_file(tmp_path / "a" / WEIGHTS_NAME).items():
        np.testing.assert_allclose(weight, one[name], rtol=1e-3, atol=1e-5)


@contextlib.contextmanager
def at_log_line(words, act):
    """Call a function as soon as the process that trains logs these words."""

    def look(record):
        if words in record.getMessage():
            act()
        return True

    logger = logging.getLogger("pipeline.training.loop")
    logger.addFilter(look)
    try:
        yield
    finally:
        logger.removeFilter(look)


def interrupt():
    raise KeyboardInterrupt


def children():
    alive = [one for one in psutil.Process().children(recursive=True) if one.status() != psutil.STATUS_ZOMBIE]
    return [one for one in alive if "pipeline.stage_process" in one.cmdline()]


def test_a_resumed_run_ends_with_the_same_weights(small_records, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    # With dropout and random layers, whose random state has to be restored.
    settings = {"backend": "jax", "epochs": 2, "model": "backend_network:build_augmented"}
    run(small_records, tmp_path / "whole", **settings)
    # The child that serves TensorFlow's stages stays.
    before = children()
    with at_log_line("Epoch 1/", interrupt), pytest.raises(KeyboardInterrupt):
        run(small_records, tmp_path / "cut", checkpoints=tmp_path / "checkpoints", **settings)
    assert set(children()) <= set(before)
    resumed = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", **settings)
    assert resumed["epochs_restored"] == 1
    assert "Proceeding with `jit_compile=False`" not in caplog.text
    whole, again = ((tmp_path / name / WEIGHTS_NAME).read_bytes() for name in ("whole", "resumed"))
    assert whole == again


def test_a_layer_that_jax_cannot_compile_is_named_before_training(small_records, tmp_path):
    with pytest.raises(SettingsError, match=r"jax cannot compile a training step: .*RandomCrop.*--Train-backend tens"):
        run(small_records, tmp_path / "run", backend="jax", model="backend_network:build_cropped")


def test_a_checkpoint_of_the_other_backend_is_refused_with_a_message(runs, small_records, tmp_path, caplog):
    of_jax = runs["jax"][0].with_name("jax-checkpoints")
    again = run(small_records, tmp_path / "again", checkpoints=shutil.copytree(of_jax, tmp_path / "copy"), **PLAIN)
    assert again["epochs_restored"] == 0
    assert "because it used {'backend': 'jax'" in caplog.text


@pytest.mark.parametrize("device", ["tpu", "gpu"])
def test_a_device_that_jax_does_not_find_is_refused_with_cause_and_remedy(small_records, tmp_path, device):
    with pytest.raises(HardwareMismatchError, match=f"device: {device} was requested") as raised:
        run(small_records, tmp_path / "run", backend="jax", device=device)
    assert {"gpu": "NVIDIA driver", "tpu": "libtpu"}[device] in raised.value.mismatch["cause"]
    assert "[Train] device" in raised.value.mismatch["remedy"]
    assert not list((tmp_path / "run").iterdir())


def test_training_falls_back_to_another_device_and_forwards_all_messages(small_records, tmp_path, caplog, monkeypatch):
    heard, settings = [], {**PLAIN, "backend": "jax", "device": "gpu", "on_mismatch": "fallback", "epochs": 1}
    monkeypatch.setattr(progress, "_listeners", [lambda *values: heard.append(values)])
    with caplog.at_level(logging.INFO):
        record = run(small_records, tmp_path / "run", **settings)
    assert (record["requested_device"], record["effective_device"]) == ("gpu", "cpu")
    assert "NVIDIA driver" in record["mismatch"]["cause"]
    # How far it is, and what it logs.
    assert ("Epoch 1/1", 384, 384, "images") in heard
    assert any(record.name == "pipeline.training.loop" for record in caplog.records)


def test_fine_tuning_with_augmentation_gives_the_same_curve_on_both_backends(runs, small_records, tmp_path):
    of_tensorflow = find_initial_weights(str(runs["tensorflow"][0] / WEIGHTS_NAME), tmp_path)
    settings = {**PLAIN, "augment": "flip,crop:4,cutout:8", "initial_weights": str(of_tensorflow.file)}
    curves = {}
    for backend in ("tensorflow", "jax"):
        folder = tmp_path / backend
        run(small_records, folder, backend=backend, initial=of_tensorflow, **settings)
        curves[backend] = [row["loss"] for row in read_metrics(folder / METRICS_NAME)]
    np.testing.assert_allclose(curves["jax"], curves["tensorflow"], rtol=1e-3)
    first, whole = curves["jax"][0], read_metrics(runs["jax"][0] / METRICS_NAME)[0]["loss"]
    assert first < whole, "it began where the other ended"


def test_an_error_of_the_settings_is_raised_as_one(small_records, tmp_path):
    with pytest.raises(SettingsError, match="jit_compile: expected auto or true"):
        run(small_records, tmp_path / "run", backend="jax", jit_compile="false")


def test_a_killed_process_is_reported_with_the_remedy(small_records, tmp_path, caplog):
    caplog.set_level(logging.INFO)

    def kill():
        for child in children():
            child.kill()

    killing = at_log_line("Epoch 1/", kill)
    with killing, pytest.raises(WorkerDiedError, match=r"ended by SIGKILL.* Finished stages and epochs are kept"):
        run(small_records, tmp_path / "run", backend="jax", **{**PLAIN, "epochs": 1000})
    assert not list(tmp_path.glob(".drawn-*"))
