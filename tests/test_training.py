import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from pipeline import training
from pipeline.config import TrainSettings
from pipeline.errors import DamagedArtefactError, SettingsError
from pipeline.metrics import EVALUATION_NAME, METRICS_NAME, MISTAKES_NAME, read_metrics
from pipeline.report.facts.reading import read_run
from pipeline.report.facts.scenarios import scenarios
from pipeline.report.wording.runs import remarks
from pipeline.runs.record import RECORD_NAME, STAGE_PARTS
from pipeline.sources import synthetic
from pipeline.training import breakdown, loop, recipes, summaries

SETTINGS = {"epochs": 2, "global_batch_size": 32, "device": "cpu", "precision": "float32"}


def run(records, folder, *, checkpoints=None, **settings):
    folder.mkdir()
    options = TrainSettings(**{**SETTINGS, **settings})
    record = training.train(
        records,
        options,
        folder,
        requested_dataset="cifar10",
        fingerprint="f" * 64,
        checkpoints=checkpoints or folder.with_name(f"{folder.name}-checkpoints"),
    )
    return record.model_dump(mode="json")


@pytest.fixture(scope="module")
def trained(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "a"
    return folder, run(small_records, folder)


def test_a_run_leaves_its_record(trained):
    folder, record = trained
    assert json.loads((folder / RECORD_NAME).read_text()) == record
    assert record["requested_dataset"] == "cifar10"
    assert record["dataset"] == "synthetic"
    assert record["dataset_verified"] is False
    assert record["effective_device"] == "cpu"
    assert record["steps_per_epoch"] == 403 // 32


@pytest.mark.slow
@pytest.mark.parametrize(("cache", "in_memory"), [("memory", True), ("none", False)])
def test_the_cache_is_where_the_settings_want_it(small_records, tmp_path, cache, in_memory):
    assert run(small_records, tmp_path / "a", epochs=1, cache=cache)["input_in_memory"] is in_memory


def test_metrics_have_a_row_for_each_epoch_and_agree_with_the_record(trained):
    folder, record = trained
    rows = read_metrics(folder / METRICS_NAME)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert record["val_accuracy"] == rows[-1]["val_accuracy"]
    assert record["first_epoch_seconds"] == rows[0]["train_seconds"]
    assert record["train_seconds"] == pytest.approx(sum(row["train_seconds"] for row in rows))
    # The first, compiling epoch is left out of the throughput.
    assert record["examples_per_second"] == pytest.approx(12 * 32 / rows[1]["train_seconds"], rel=0.01)


def test_the_saved_model_is_the_trained_one(trained):
    folder, record = trained
    model = keras.saving.load_model(folder / training.MODEL_NAME, safe_mode=True)
    saved, loaded = load_file(folder / training.WEIGHTS_NAME), training.named_weights(model)
    assert len(saved) == 10
    assert saved.keys() == loaded.keys()
    for name in saved:
        np.testing.assert_array_equal(loaded[name], saved[name])
    images, labels = synthetic.draw_block("test", 0, 101)
    accuracy = (model.predict(images, verbose=0).argmax(axis=1) == labels).mean()
    assert accuracy == pytest.approx(record["val_accuracy"], abs=1e-6)


def test_tensorboard_has_train_and_test_scalars(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = trained
    for name in ("train", "test"):
        path = folder / summaries.TENSORBOARD_NAME / name
        events = EventAccumulator(str(path), size_guidance={"tensors": 0}).Reload()
        assert [event.step for event in events.Tensors("epoch_accuracy")] == [1, 2]


def test_tensorboard_has_hyper_parameters_and_the_images_of_mistakes(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    folder, record = trained
    events = EventAccumulator(str(folder / summaries.TENSORBOARD_NAME), size_guidance={"tensors": 0}).Reload()
    started = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    found = metadata.parse_session_start_info_plugin_data(started).hparams
    assert found["global_batch_size"].number_value == 32
    assert found["recipe"].string_value == record["recipe"]
    (images,) = events.Tensors("mistakes")
    width, height, *pngs = images.tensor_proto.string_val
    assert (width, height) == (b"32", b"32")
    facts = json.loads((folder / EVALUATION_NAME).read_text())
    sheet = tf.io.decode_png((folder / MISTAKES_NAME).read_bytes()).numpy()
    assert len(pngs) == len(facts["mistakes"])
    np.testing.assert_array_equal(tf.io.decode_png(pngs[0]), sheet[:32, :32])


def test_the_evaluation_agrees_with_the_record(trained):
    folder, record = trained
    facts = json.loads((folder / EVALUATION_NAME).read_text())
    assert facts["accuracy"] == pytest.approx(record["val_accuracy"], abs=1e-6)


@pytest.mark.slow
def test_the_profiler_traces_the_steps_asked_for_and_changes_no_weight(trained, small_records, tmp_path):
    folder, _ = trained
    run(small_records, tmp_path / "b", profile_steps=3)
    assert list((tmp_path / "b").glob("tensorboard/plugins/profile/*/*.xplane.pb"))
    weights = [(path / training.WEIGHTS_NAME).read_bytes() for path in (folder, tmp_path / "b")]
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_the_same_seed_trains_the_same_weights(trained, small_records, tmp_path):
    folder, _ = trained
    run(small_records, tmp_path / "b")
    same = (tmp_path / "b" / training.WEIGHTS_NAME).read_bytes()
    assert same == (folder / training.WEIGHTS_NAME).read_bytes()
    run(small_records, tmp_path / "c", seed=1)
    assert same != (tmp_path / "c" / training.WEIGHTS_NAME).read_bytes()


class Killed(Exception):
    """Stands for a kill: nothing of ours catches it."""


@pytest.fixture
def run_killed_after(small_records, tmp_path, monkeypatch):
    """A function that trains until the checkpoint of an epoch is there; it lies in tmp_path / "checkpoints"."""

    def train(epochs_done, **settings):
        report = loop._report

        def kill(row, epochs):
            if row["epoch"] == epochs_done:
                raise Killed
            return report(row, epochs)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "_report", kill)
            with pytest.raises(Killed):
                run(small_records, tmp_path / f"killed-{epochs_done}", checkpoints=tmp_path / "checkpoints", **settings)

    return train


@pytest.mark.slow
@pytest.mark.parametrize("epochs_done", [1, 2])
def test_a_resumed_run_ends_with_the_same_weights(trained, small_records, tmp_path, run_killed_after, epochs_done):
    folder, whole = trained
    run_killed_after(epochs_done)
    resumed = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints")
    weights = [(path / training.WEIGHTS_NAME).read_bytes() for path in (folder, tmp_path / "resumed")]
    assert weights[0] == weights[1]
    assert (whole["epochs_restored"], resumed["epochs_restored"]) == (0, epochs_done)
    rows = [read_metrics(path / METRICS_NAME) for path in (folder, tmp_path / "resumed")]
    assert [row["val_loss"] for row in rows[0]] == [row["val_loss"] for row in rows[1]]


@pytest.mark.slow
def test_each_process_of_a_run_is_a_segment_and_its_compiling_epoch_no_measure_of_throughput(
    small_records, tmp_path, run_killed_after, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "first")
        patch.setattr("pipeline.hardware.receipt.find_doubts", lambda *_: ["nothing was seen"])
        run_killed_after(1, epochs=5)
    run_killed_after(3, epochs=5)
    record = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", epochs=5)
    segments = record["segments"]
    assert [(one["first_epoch"], one["last_epoch"]) for one in segments] == [(1, 1), (2, 3), (4, 5)]
    assert [one["hostname"] for one in segments] == ["first", *[record["hostname"]] * 2]
    assert [one["device_verified"] for one in segments] == [False, True, True]
    assert [one["receipt"]["doubts"] for one in segments] == [["nothing was seen"], [], []]
    assert record["receipt"]["device_verified"] is True
    assert record["device_verified"] is False, "of the first epoch's hardware nothing was seen"
    seconds = [row["train_seconds"] for row in read_metrics(tmp_path / "resumed" / METRICS_NAME)]
    mean = (seconds[2] + seconds[4]) / 2
    assert record["examples_per_second"] == pytest.approx(12 * 32 / mean, rel=0.01)
    assert record["train_seconds"] == pytest.approx(sum(seconds), abs=1e-3)
    parts = record["time_breakdown"]
    assert parts["step_seconds"] * 12 == pytest.approx(mean, rel=0.01)
    # Of all processes, as the seconds of training are.
    assert parts["training_seconds"] == pytest.approx(record["train_seconds"], rel=0.02)
    assert parts["evaluation_seconds"] >= record["evaluation_seconds"]
    (row,) = scenarios([read_run(tmp_path / "resumed")])
    assert row["epoch_seconds"]["mean"] == pytest.approx(mean)


@pytest.mark.slow
def test_a_run_resumed_after_its_last_epoch_is_of_the_host_that_trained_it(
    small_records, tmp_path, run_killed_after, monkeypatch
):
    from pipeline.hardware import probe

    measure = probe.measure
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "first")
        patch.setattr(probe, "measure", lambda *how: measure(*how) | {"convolution_flops_per_second": 7.0})
        run_killed_after(1, epochs=1)
    record = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", epochs=1)
    assert (record["hostname"], record["finished_on"]) == ("first", training.socket.gethostname())
    (segment,) = record["segments"]
    assert (segment["hostname"], segment["receipt"]) == ("first", record["receipt"])
    assert record["reference_flops_per_second"] == 7.0
    read = read_run(tmp_path / "resumed")
    assert read["resumed"] == [{"epoch": 2, "hostname": record["finished_on"]}]
    assert remarks(read)[-1] == f"resumed on {record['finished_on']} after the last epoch"


@pytest.mark.slow
def test_a_checkpoint_of_another_computation_is_refused_and_said_so(small_records, tmp_path, run_killed_after, caplog):
    run_killed_after(1)
    again = run(small_records, tmp_path / "again", checkpoints=tmp_path / "checkpoints", precision="bfloat16")
    assert again["epochs_restored"] == 0
    assert [(one["first_epoch"], one["last_epoch"]) for one in again["segments"]] == [(1, 2)]
    assert "training starts over: precision was 'float32', is 'bfloat16'" in caplog.text


@pytest.mark.slow
def test_a_checkpoint_of_another_device_is_refused_and_said_so(
    small_records, tmp_path, run_killed_after, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.machine.cpu_model", lambda: "another processor")
        run_killed_after(1)
    again = run(small_records, tmp_path / "again", checkpoints=tmp_path / "checkpoints")
    assert again["epochs_restored"] == 0
    assert "training starts over: device_name was 'another processor" in caplog.text


@pytest.mark.slow
def test_a_damaged_checkpoint_is_left_out(small_records, tmp_path, caplog):
    checkpoints = tmp_path / "checkpoints"
    run(small_records, tmp_path / "a", checkpoints=checkpoints)
    state = checkpoints / "epoch-000002" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    again = run(small_records, tmp_path / "b", checkpoints=checkpoints)
    assert again["epochs_restored"] == 0
    assert "state.safetensors: manifest lists sha256" in caplog.text


@pytest.mark.slow
def test_another_runs_checkpoint_is_not_taken(small_records, tmp_path):
    from pipeline.artefacts.manifest import write_manifest

    checkpoints = tmp_path / "checkpoints"
    run(small_records, tmp_path / "a", checkpoints=checkpoints)
    folder = checkpoints / "epoch-000002"
    (folder / "manifest.json").unlink()
    write_manifest(folder, stage="checkpoint", identity={"run": "e" * 64, "epoch": 2}, details={})
    assert run(small_records, tmp_path / "b", checkpoints=checkpoints)["epochs_restored"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["baseline", "lamb"])
def test_training_learns(small_records, tmp_path, recipe):
    record = run(small_records, tmp_path / "a", epochs=12, recipe=recipe)
    losses = [row["loss"] for row in read_metrics(tmp_path / "a" / METRICS_NAME)]
    assert losses[-1] < losses[0]
    assert record["recipe"] == recipe


@pytest.mark.parametrize(("how", "factor"), [("none", 1), ("linear", 4), ("sqrt", 2)])
def test_the_learning_rate_grows_with_the_global_batch(how, factor):
    rate = recipes.make_optimizer(
        "baseline", total_steps=10, global_batch_size=512, scale_learning_rate=how
    ).learning_rate
    assert float(rate) == pytest.approx(1e-3 * factor)


@pytest.mark.slow
def test_where_the_time_went_adds_up(small_records, tmp_path, caplog):
    caplog.set_level("INFO")
    started = time.perf_counter()
    record = run(small_records, tmp_path / "a", profile_steps=1)
    wall = time.perf_counter() - started
    parts = [record["time_breakdown"][f"{part}_seconds"] for part in STAGE_PARTS]
    assert all(seconds > 0 for seconds in parts)
    assert sum(parts) == pytest.approx(wall, rel=0.05)
    # What comes after the last epoch is not silent.
    for words in ("looking at the predictions", "saving the network", "timing a step", "tracing 1 steps"):
        assert words in caplog.text


@pytest.mark.parametrize("steps_per_execution", [1, 24, 32])
@pytest.mark.parametrize("step_seconds", [1e-4, 0.015, 0.1, 0.3, 0.37, 0.5, 1.6, 5.0])
def test_timing_a_step_is_bounded(step_seconds, steps_per_execution):
    plan = breakdown.plan_calls(step_seconds, steps_per_execution)
    if plan is None:
        assert 4 * step_seconds > breakdown.STEP_BUDGET_SECONDS, "a warm-up and three calls would have fitted"
        return
    calls, steps = plan
    assert calls >= 3
    assert 1 <= steps <= steps_per_execution
    assert (1 + calls) * steps * step_seconds <= breakdown.STEP_BUDGET_SECONDS
    assert breakdown.STEP_BUDGET_SECONDS + breakdown.INPUT_BUDGET_SECONDS <= 2


@pytest.mark.slow
def test_a_step_too_slow_to_be_timed_is_left_out_and_said_so(small_records, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(breakdown, "STEP_BUDGET_SECONDS", 1e-6)
    parts = run(small_records, tmp_path / "a")["time_breakdown"]
    assert "too long to repeat" in parts["not_measured"]
    assert (parts["step_alone_seconds"], parts["input_wait_share"]) == (None, None)
    assert parts["step_seconds"] > 0
    assert "too long to repeat" in caplog.text


@pytest.mark.slow
def test_of_an_epoch_that_compiled_no_step_of_training_is_stated_and_it_is_timed_alone_all_the_same(
    small_records, tmp_path
):
    record = run(small_records, tmp_path / "a", epochs=1)
    parts = record["time_breakdown"]
    assert (parts["step_seconds"], parts["compilation_seconds"], parts["input_wait_share"]) == (None, None, None)
    assert parts["not_measured"] is None
    assert 0 < parts["step_alone_seconds"] * record["steps_per_epoch"] < record["train_seconds"]


def test_a_step_is_not_tried_where_an_epoch_that_compiled_does_not_show_that_it_is_short(small_records):
    from pipeline.artefacts.manifest import read_manifest
    from pipeline.stream import InputStream, Split

    split = Split.of_manifest(small_records, read_manifest(small_records), "train")
    stream = InputStream(split, global_batch_size=32, seed=0, in_memory=False)
    rows = [{"epoch": 1, "train_seconds": 12 * 1.6}]
    # No model: none may be called.
    parts = breakdown.measure(None, stream, rows, [1], trained=True)
    assert parts["not_measured"] == "a step took 1.6 s with its compilation, too long to repeat it"
    assert parts["step_seconds"] is None


@pytest.mark.slow
def test_the_train_function_takes_as_many_steps_as_there_are_batches(small_records, tmp_path, monkeypatch):
    # Fewer than one execution has: what makes timing a step cheap where an execution is long.
    seen = []
    measure = breakdown.measure

    def watch(model, stream, *args, **how):
        before = int(model.optimizer.iterations)
        breakdown.step_alone_seconds(model, stream, calls=3, steps=2)
        seen.append((model.steps_per_execution, int(model.optimizer.iterations) - before))
        return measure(model, stream, *args, **how)

    monkeypatch.setattr(breakdown, "measure", watch)
    run(small_records, tmp_path / "a", epochs=1)
    assert seen == [(12, (1 + 3) * 2)]


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
def test_a_batch_that_will_not_fit_into_memory_is_said_before_the_first_step(
    small_records, tmp_path, monkeypatch, caplog
):
    run(small_records, tmp_path / "a", epochs=1)
    assert "global_batch_size" not in caplog.text
    monkeypatch.setattr("pipeline.machine.free_memory_bytes", lambda: 5_000_000)
    run(small_records, tmp_path / "b", epochs=1, cache="memory")
    # 32 images, of which each takes about 632 kB in float32.
    assert "a step on 32 images takes about 0.0 GB of memory" in caplog.text
    assert "Up to 7 would fit." in caplog.text


def test_a_step_and_its_parts_agree_with_the_seconds_of_training(trained):
    _, record = trained
    parts = record["time_breakdown"]
    assert parts["step_seconds"] * record["steps_per_epoch"] == pytest.approx(
        record["train_seconds"] - record["first_epoch_seconds"], abs=1e-3
    )
    assert 0 <= parts["input_wait_share"] <= parts["input_alone_seconds"] / parts["step_seconds"] + 1e-4
    assert (parts["compilation_seconds"] or 0) < record["first_epoch_seconds"]
    assert parts["evaluation_seconds"] >= record["evaluation_seconds"]
    assert min(parts["input_alone_seconds"], parts["checkpoint_seconds"]) > 0
    assert record["peak_host_bytes"] > 50e6


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", ["false", "true"])
def test_the_receipt_is_of_the_runs_own_train_function_and_looking_changes_no_weight(
    small_records, tmp_path, monkeypatch, jit_compile
):
    settings = {"epochs": 1, "jit_compile": jit_compile}
    placement = run(small_records, tmp_path / "seen", **settings)["receipt"]["placement"]
    assert placement["observed"] == "train_function"
    assert placement["computation_devices"] == placement["variable_devices"]
    monkeypatch.setattr(training.hardware, "observe_training", lambda model: [])
    assert run(small_records, tmp_path / "unseen", **settings)["receipt"]["placement"]["observed"] == "probe"
    seen, unseen = (load_file(tmp_path / name / training.WEIGHTS_NAME) for name in ("seen", "unseen"))
    for name, weight in seen.items():
        np.testing.assert_array_equal(weight, unseen[name])


def test_the_peak_of_every_gpu_is_counted_from_the_start_of_the_run(monkeypatch):
    # What no machine without a GPU can try: that the names are those TensorFlow gives its logical devices.
    gpus, reset = [SimpleNamespace(name=f"/device:GPU:{index}") for index in range(2)], []
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", reset.append)
    breakdown.reset_peak_memory()
    assert reset == ["GPU:0", "GPU:1"]


@pytest.mark.parametrize(
    ("step", "step_alone", "input_alone", "share"),
    [
        (0.010, 0.010, 0.0001, 0.0),
        # Faster alone because the machine was quieter then: no wait can be longer than a batch takes.
        (0.010, 0.008, 0.0001, 0.01),
        (0.010, 0.012, 0.0001, 0.0),
        # The stream takes longer than the step: the difference is waiting.
        (0.010, 0.006, 0.010, 0.4),
        (0.010, 0.001, 0.010, 0.9),
    ],
)
def test_the_share_of_waiting(step, step_alone, input_alone, share):
    assert breakdown.input_wait_share(step=step, step_alone=step_alone, input_alone=input_alone) == share


def test_a_missing_device_is_skipped_with_its_reason_and_no_figures(small_records, tmp_path):
    record = run(small_records, tmp_path / "a", device="tpu", tpu_address="grpc://127.0.0.1:9", on_mismatch="skip")
    assert json.loads((tmp_path / "a" / RECORD_NAME).read_text()) == record
    assert (record["status"], record["requested_device"], record["effective_device"]) == ("skipped", "tpu", "none")
    assert "does not answer" in record["mismatch"]["cause"]
    assert record["device_verified"] is False
    assert {record[name] for name in ("val_accuracy", "train_seconds", "examples_per_second")} == {None}


@pytest.mark.slow
def test_a_fallback_trains_and_says_what_was_requested(small_records, tmp_path):
    settings = {"device": "tpu", "tpu_address": "grpc://127.0.0.1:9", "on_mismatch": "fallback", "epochs": 1}
    record = run(small_records, tmp_path / "a", **settings)
    assert (record["requested_device"], record["effective_device"]) == ("tpu", "cpu")
    assert record["device_verified"] is True
    assert "does not answer" in record["mismatch"]["cause"]
    assert record["receipt"]["mismatch"] == record["mismatch"]


@pytest.mark.slow
def test_any_number_of_replicas_trains_to_the_same_weights(small_records, tmp_path):
    # Processes of their own: logical devices are laid out once in each.
    script = Path(__file__).with_name("train_replicas.py")
    processes = {}
    for replicas in (1, 2, 4, 8):
        (tmp_path / str(replicas)).mkdir()
        command = [sys.executable, script, small_records, tmp_path / str(replicas), replicas]
        processes[replicas] = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE, text=True)
    weights = {}
    for replicas, process in processes.items():
        _, said = process.communicate()
        assert process.returncode == 0, said
        record = json.loads((tmp_path / str(replicas) / RECORD_NAME).read_text())
        assert (record["num_replicas"], record["device_verified"]) == (replicas, True)
        assert record["receipt"]["placement"]["observed"] == "train_function"
        assert len(record["receipt"]["placement"]["computation_devices"]) == replicas
        weights[replicas] = load_file(tmp_path / str(replicas) / training.WEIGHTS_NAME)
    for replicas in (2, 4, 8):
        for name, weight in weights[1].items():
            np.testing.assert_allclose(weights[replicas][name], weight, rtol=1e-4, atol=1e-6)


def test_a_damaged_shard_is_refused_before_the_first_step(small_records, tmp_path):
    import shutil

    copy = shutil.copytree(small_records, tmp_path / "records")
    shard = next(copy.glob("*-train.tfrecord-00001-*"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DamagedArtefactError, match=f"{shard.name}: manifest lists sha256"):
        run(copy, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_batch_larger_than_the_split_is_refused(small_records, tmp_path):
    with pytest.raises(SettingsError, match="at most the 403 examples"):
        run(small_records, tmp_path / "run", global_batch_size=404)


@pytest.mark.parametrize("total_steps", [1, 5, 1_950])
def test_one_cycle_climbs_and_falls(total_steps):
    schedule = recipes.WarmUpLinearDecay(5e-3, total_steps, warm_up=0.2)
    rates = np.array([float(schedule(step)) for step in range(total_steps)])
    assert (rates > 0).all()
    assert rates.max() <= 5e-3 + 1e-9
    peak = rates.argmax()
    # Two steps as high as each other where the peak falls between them.
    assert (np.diff(rates[: peak + 1]) > 0).all()
    assert (np.diff(rates[peak:]) <= 0).all()
    assert (np.diff(rates[peak + 1 :]) < 0).all()
    if total_steps > 100:
        assert peak == pytest.approx(0.2 * total_steps, abs=1)
        assert rates[-1] < 5e-3 * 2 / total_steps
