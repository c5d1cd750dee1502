import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import training_runs
from training_runs import run

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError, IncompleteTrainingError, SettingsError
from pipeline.problems.problem import EVALUATION_NAME, TEST_IMAGES_NAME
from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, TENSORBOARD_NAME, WEIGHTS_NAME, read_metrics
from pipeline.runs.record import RECORD_NAME
from pipeline.sources import placeholder_images


def setup_module() -> None:
    global keras, load_file, loop, named_weights, tf
    import keras
    import tensorflow as tf
    from safetensors.numpy import load_file

    from pipeline.training import loop
    from pipeline.training.model import named_weights


def test_a_run_leaves_its_record(trained):
    folder, record = trained
    assert json.loads((folder / RECORD_NAME).read_text()) == record
    assert record["requested_dataset"] == "cifar10"
    assert record["dataset"] == "synthetic"
    assert record["dataset_verified"] is False
    assert record["division"] == {"by": "key", "test_share": 0.0, "validation_share": None}
    assert record["effective_device"] == "cpu"
    assert record["steps_per_epoch"] == 403 // 32


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        # A compilation of 100 s, and then 0.5 s for each step.
        ([(1, 100.0), (5, 102.0), (8, 103.5), (9, 104.0)], ["Training takes about 46 s more."]),
        ([(40, 100.0), (80, 120.0)], []),
        ([(1, 100.0), (5, 102.0)], []),
        (
            [(0, 100.0), (2, 104.0)],
            [
                "Training takes about 3 min more.",
                "An epoch takes about 2 min. Lower [Train] epochs, select a smaller [Train] model or, for a pretrained "
                "model, set [Train] fine_tune = head.",
            ],
        ),
    ],
)
def test_the_remaining_time_is_logged_once_from_the_steps_after_the_first(steps, said, monkeypatch, caplog):
    caplog.set_level("INFO")
    estimate = loop._Estimate(2, 50)
    for step, seconds in steps:
        monkeypatch.setattr("time.perf_counter", lambda now=seconds: now)
        estimate(step)
    monkeypatch.undo()
    assert caplog.messages == said


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "in_memory"), [("memory", True), ("none", False)])
def test_the_cache_is_where_the_settings_want_it(small_records, tmp_path, cache, in_memory):
    assert run(small_records, tmp_path / "a", epochs=1, cache=cache)["input_in_memory"] is in_memory


def test_metrics_have_a_row_for_each_epoch_and_agree_with_the_record(trained):
    folder, record = trained
    rows = read_metrics(folder / METRICS_NAME)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert record["test_accuracy"] == rows[-1]["test_accuracy"]
    assert record["first_epoch_seconds"] == rows[0]["train_seconds"]
    assert record["train_seconds"] == pytest.approx(sum(row["train_seconds"] for row in rows))
    # The first, compiling epoch is left out of the throughput.
    assert record["examples_per_second"] == pytest.approx(12 * 32 / rows[1]["train_seconds"], rel=0.01)


@pytest.mark.parametrize(("size", "warnings"), [(40, 0), (41, 1)])
def test_few_steps_per_epoch_log_a_warning(small_records, tmp_path, caplog, size, warnings):
    run(small_records, tmp_path / "a", epochs=1, global_batch_size=size, model="tests.tiny_model:build")
    expected = (
        "An epoch has only 9 steps of 41 examples. With so few steps, a model learns little. Pass a smaller "
        "--Train-global-batch-size, such as 40."
    )
    assert [record.getMessage() for record in caplog.records if "An epoch" in record.getMessage()] == [
        expected
    ] * warnings


@pytest.fixture
def configuration_put_back():
    yield
    keras.config.set_floatx("float32")
    keras.config.set_epsilon(1e-7)
    keras.config.set_image_data_format("channels_last")
    keras.config.set_max_steps_per_epoch(None)
    keras.config.set_max_epochs(None)


def test_keras_own_configuration_does_not_shape_a_run(trained, small_records, tmp_path, configuration_put_back):
    # As keras.json sets it.
    keras.config.set_floatx("float16")
    keras.config.set_epsilon(0.1)
    keras.config.set_image_data_format("channels_first")
    keras.config.set_max_epochs(1)
    run(small_records, tmp_path / "run")
    expected, found = (load_file(folder / WEIGHTS_NAME) for folder in (trained[0], tmp_path / "run"))
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-5)


def test_fewer_updates_than_steps_are_no_run(small_records, tmp_path, configuration_put_back, monkeypatch):
    monkeypatch.setattr("pipeline.models.build.configure_keras", lambda: None)
    monkeypatch.setattr("pipeline.training.model.STEPS_PER_EXECUTION", 4)
    keras.config.set_max_steps_per_epoch(1)
    with pytest.raises(IncompleteTrainingError, match="Expected 12 updates of the weights, got"):
        run(small_records, tmp_path / "run")


def test_all_files_of_a_run_have_the_same_permissions(trained):
    modes = {path.name: oct(path.stat().st_mode) for path in trained[0].iterdir() if path.is_file()}
    assert len(set(modes.values())) == 1, modes


def test_the_saved_model_is_the_trained_one(trained):
    folder, record = trained
    model = keras.saving.load_model(folder / MODEL_NAME, safe_mode=True)
    saved, loaded = load_file(folder / WEIGHTS_NAME), named_weights(model)
    assert len(saved) == 3
    assert saved.keys() == loaded.keys()
    for name in saved:
        np.testing.assert_array_equal(loaded[name], saved[name])
    images, labels = placeholder_images.draw_block("test", 0, 101)
    accuracy = (model.predict(images, verbose=0).argmax(axis=1) == labels).mean()
    assert accuracy == pytest.approx(record["test_accuracy"], abs=1e-6)


def test_reported_metrics_are_of_the_saved_model(small_records, tmp_path):
    # Training uses a faster GELU, and bfloat16 rounds otherwise.
    run(small_records, tmp_path / "a", precision="bfloat16", epochs=1)
    facts = json.loads((tmp_path / "a" / EVALUATION_NAME).read_text())
    mistakes = [image for image in facts["test_images"] if image["predicted"] != image["label"]][:24]
    model = keras.saving.load_model(tmp_path / "a" / MODEL_NAME, safe_mode=True)
    images, labels = placeholder_images.draw_block("test", 0, 101)
    probabilities = keras.ops.softmax(model.predict(images, batch_size=32, verbose=0)).numpy()
    confidences = probabilities.max(axis=1)[probabilities.argmax(axis=1) != labels]
    reported = [one["confidence"] for one in mistakes]
    assert reported
    np.testing.assert_allclose(reported, np.sort(confidences)[::-1][: len(reported)], atol=1e-6)


def test_tensorboard_has_train_and_test_scalars(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = trained
    for name in ("train", "test"):
        path = folder / TENSORBOARD_NAME / name
        events = EventAccumulator(str(path), size_guidance={"tensors": 0}).Reload()
        assert [event.step for event in events.Tensors("epoch_accuracy")] == [1, 2]


def test_tensorboard_has_hyper_parameters_and_the_images_of_mistakes(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    folder, record = trained
    events = EventAccumulator(str(folder / TENSORBOARD_NAME), size_guidance={"tensors": 0}).Reload()
    started = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    found = metadata.parse_session_start_info_plugin_data(started).hparams
    assert found["global_batch_size"].number_value == 32
    assert found["training_recipe"].string_value == record["training_recipe"]
    (images,) = events.Tensors("mistakes")
    width, height, *pngs = images.tensor_proto.string_val
    assert (width, height) == (b"32", b"32")
    facts = json.loads((folder / EVALUATION_NAME).read_text())
    sheet = tf.io.decode_png((folder / TEST_IMAGES_NAME).read_bytes()).numpy()
    assert len(pngs) == sum(image["predicted"] != image["label"] for image in facts["test_images"][:24]) > 0
    np.testing.assert_array_equal(tf.io.decode_png(pngs[0]), sheet[:32, :32])


def test_the_evaluation_agrees_with_the_record(trained):
    folder, record = trained
    facts = json.loads((folder / EVALUATION_NAME).read_text())
    assert facts["accuracy"] == pytest.approx(record["test_accuracy"], abs=1e-6)


@pytest.mark.slow
def test_the_same_seed_trains_the_same_weights_and_the_profiler_traces_the_requested_steps(
    trained, small_records, tmp_path
):
    folder, _ = trained
    run(small_records, tmp_path / "b", profile_steps=3)
    assert list((tmp_path / "b").glob("tensorboard/plugins/profile/*/*.xplane.pb"))
    weights = [(path / WEIGHTS_NAME).read_bytes() for path in (folder, tmp_path / "b")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_another_seed_trains_other_weights(trained, small_records, tmp_path):
    run(small_records, tmp_path / "b", seed=1)
    assert (trained[0] / WEIGHTS_NAME).read_bytes() != (tmp_path / "b" / WEIGHTS_NAME).read_bytes()


@pytest.mark.slow
def test_training_learns(small_records, tmp_path):
    record = run(small_records, tmp_path / "a", epochs=12, training_recipe="lamb")
    losses = [row["loss"] for row in read_metrics(tmp_path / "a" / METRICS_NAME)]
    assert losses[-1] < losses[0]
    assert record["training_recipe"] == "lamb"


@pytest.mark.slow
def test_an_explicit_weight_decay_equal_to_the_recipes_is_the_same(small_records, tmp_path):
    """Muon's is that of biases too, which a decay asked for leaves alone otherwise."""
    weights = []
    for name, settings in {"own": {}, "asked": {"weight_decay": 0.11}}.items():
        run(small_records, tmp_path / name, epochs=1, model="mnist_dense", training_recipe="muon", **settings)
        weights.append((tmp_path / name / WEIGHTS_NAME).read_bytes())
        assert all(np.isfinite(one).all() for one in load_file(tmp_path / name / WEIGHTS_NAME).values())
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_the_network_is_not_evaluated_twice_after_the_last_epoch(small_records, tmp_path, monkeypatch):
    passes = []
    for name in ("evaluate", "predict"):
        method = getattr(keras.Model, name)
        monkeypatch.setattr(
            keras.Model,
            name,
            lambda model, *args, _name=name, _method=method, **how: (
                passes.append(_name) or _method(model, *args, **how)
            ),
        )
    run(small_records, tmp_path / "a")
    assert passes == ["evaluate", "predict"], "one of them after each of two epochs"


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", ["false", "true"])
def test_the_receipt_is_of_the_runs_own_train_function_and_looking_changes_no_weight(
    small_records, tmp_path, monkeypatch, jit_compile
):
    settings = {"epochs": 1, "jit_compile": jit_compile}
    placement = run(small_records, tmp_path / "seen", **settings)["receipt"]["placement"]
    assert placement["observed"] == "train_function"
    assert placement["computation_devices"] == placement["variable_devices"]
    monkeypatch.setattr("pipeline.hardware.tensorflow.TensorFlow.observe_training", lambda *_: list)
    assert run(small_records, tmp_path / "unseen", **settings)["receipt"]["placement"]["observed"] == "probe"
    seen, unseen = (load_file(tmp_path / name / WEIGHTS_NAME) for name in ("seen", "unseen"))
    for name, weight in seen.items():
        np.testing.assert_array_equal(weight, unseen[name])


def test_a_missing_device_is_skipped_with_its_reason_and_no_figures(small_records, tmp_path):
    record = run(small_records, tmp_path / "a", device="tpu", on_mismatch="skip")
    assert json.loads((tmp_path / "a" / RECORD_NAME).read_text()) == record
    assert (record["status"], record["requested_device"], record["effective_device"]) == ("skipped", "tpu", "none")
    assert "lists no TPU" in record["mismatch"]["cause"]
    assert record["device_verified"] is False
    assert {record[name] for name in ("test_accuracy", "train_seconds", "examples_per_second")} == {None}


@pytest.mark.slow
def test_a_fallback_trains_and_says_what_was_requested(small_records, tmp_path):
    settings = {"device": "tpu", "on_mismatch": "fallback", "epochs": 1}
    record = run(small_records, tmp_path / "a", **settings)
    assert (record["requested_device"], record["effective_device"]) == ("tpu", "cpu")
    assert record["device_verified"] is True
    assert "lists no TPU" in record["mismatch"]["cause"]
    assert record["receipt"]["mismatch"] == record["mismatch"]


@pytest.mark.slow
def test_four_replicas_train_to_the_same_weights_as_one(small_records, tmp_path):
    # Processes of their own: logical devices are laid out once in each.
    script = Path(training_runs.__file__).with_name("train_replicas.py")
    # Muon's rates are those of normalized networks: in this one roundings grow by them.
    training_recipes = {"onecycle": 1e-4, "muon": 2e-3}
    processes = {}
    for replicas in (1, 4):
        command = [sys.executable, script, small_records, tmp_path / str(replicas), replicas, *training_recipes]
        processes[replicas] = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True)
    for process in processes.values():
        _, said = process.communicate()
        assert process.returncode == 0, said
    for training_recipe, rtol in training_recipes.items():
        weights = {}
        for replicas in processes:
            folder = tmp_path / str(replicas) / training_recipe
            record = json.loads((folder / RECORD_NAME).read_text())
            assert (record["num_replicas"], record["device_verified"]) == (replicas, True)
            assert record["receipt"]["placement"]["observed"] == "train_function"
            assert len(record["receipt"]["placement"]["computation_devices"]) == replicas
            weights[replicas] = load_file(folder / WEIGHTS_NAME)
            assert all(np.isfinite(one).all() for one in weights[replicas].values())
        for name, weight in weights[1].items():
            np.testing.assert_allclose(weights[4][name], weight, rtol=rtol, atol=rtol / 20)


def test_a_damaged_shard_is_refused_before_the_first_step(small_records, tmp_path):
    import shutil

    copy = shutil.copytree(small_records, tmp_path / "records")
    shard = next(copy.glob("*-train.tfrecord-00001-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DamagedArtifactError, match=f"{shard.name}: expected sha256"):
        run(copy, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_batch_larger_than_the_split_is_refused(small_records, tmp_path):
    with pytest.raises(SettingsError, match="at most the 403 examples"):
        run(small_records, tmp_path / "run", global_batch_size=404)


def test_evaluation_batches_have_a_limited_size(small_records, monkeypatch):
    from pipeline.training import setup

    manifest, sizes = read_manifest(small_records), []
    for limit in (setup._EVALUATION_INPUT_BYTES, 10 * 32 * 32 * 3, 1):
        monkeypatch.setattr(setup, "_EVALUATION_INPUT_BYTES", limit)
        sizes.append(setup.evaluation_streams(small_records, manifest, 1, 0)["test"].global_batch_size)
    assert sizes == [101, 10, 1]
