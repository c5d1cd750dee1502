import shutil
import socket

import pytest
from training_runs import run, train_until

from pipeline.runs.metrics import METRICS_NAME, MODEL_NAME, WEIGHTS_NAME, read_metrics


def setup_module() -> None:
    global loop, read_run, remarks, scenarios
    from pipeline.report.data.reading import read_run
    from pipeline.report.data.scoreboard import scenarios
    from pipeline.report.formats import remarks
    from pipeline.training import loop


@pytest.fixture
def run_killed_after(small_records, tmp_path):
    """A function that trains until the checkpoint of an epoch is there; it lies in tmp_path / "checkpoints"."""
    return lambda epochs_done, **settings: train_until(epochs_done, small_records, tmp_path, **settings)


@pytest.fixture(scope="module")
def killed_after_one(small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    train_until(1, small_records, folder)
    return folder / "checkpoints"


@pytest.fixture
def checkpoints(killed_after_one, tmp_path):
    """A copy of the checkpoints of a run that was killed after the first of its two epochs."""
    return shutil.copytree(killed_after_one, tmp_path / "checkpoints")


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_weights(trained, small_records, tmp_path, checkpoints):
    folder, whole = trained
    resumed = run(small_records, tmp_path / "resumed", checkpoints=checkpoints)
    weights = [(path / WEIGHTS_NAME).read_bytes() for path in (folder, tmp_path / "resumed")]
    assert weights[0] == weights[1]
    assert (whole["epochs_restored"], resumed["epochs_restored"]) == (0, 1)
    rows = [read_metrics(path / METRICS_NAME) for path in (folder, tmp_path / "resumed")]
    assert [row["test_loss"] for row in rows[0]] == [row["test_loss"] for row in rows[1]]


@pytest.mark.slow
def test_the_space_that_a_run_asks_for_is_what_its_files_take(small_records, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(loop, "require_space", lambda folder, needed: asked.append(needed))
    run(
        small_records, tmp_path / "a", epochs=1, model="mnist_dense", training_recipe="muon", checkpoints=tmp_path / "b"
    )
    (checkpoint,) = (tmp_path / "b").glob("epoch-*/state.safetensors")
    checkpoint_bytes = checkpoint.stat().st_size
    network_bytes = sum((tmp_path / "a" / name).stat().st_size for name in (WEIGHTS_NAME, MODEL_NAME))
    most = checkpoint_bytes + max(checkpoint_bytes, network_bytes)
    assert asked == [pytest.approx(most, rel=0.02)]


@pytest.mark.slow
def test_a_resumed_run_from_disk_sees_the_same_augmented_examples(small_records, tmp_path, run_killed_after):
    augmented = {"augment": "flip, crop:4, cutout:8, mixup:0.2", "cache": "none"}
    # Its own random layers have states too.
    augmented["model"] = "backend_network:build_augmented"
    run(small_records, tmp_path / "whole", **augmented)
    run_killed_after(1, **augmented)
    run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", **augmented)
    whole, resumed = ((tmp_path / name / WEIGHTS_NAME).read_bytes() for name in ("whole", "resumed"))
    assert whole == resumed


@pytest.mark.slow
def test_each_process_of_a_run_is_a_segment_and_its_compiling_epoch_no_measure_of_throughput(
    small_records, tmp_path, run_killed_after, monkeypatch
):
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "first")
        patch.setattr("pipeline.hardware.receipt.find_failed_checks", lambda *_: ["nothing was seen"])
        run_killed_after(1, epochs=5)
    run_killed_after(3, epochs=5)
    record = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints", epochs=5)
    segments = record["segments"]
    assert [(one["first_epoch"], one["last_epoch"]) for one in segments] == [(1, 1), (2, 3), (4, 5)]
    assert [one["hostname"] for one in segments] == ["first", *[record["hostname"]] * 2]
    assert [one["device_verified"] for one in segments] == [False, True, True]
    assert [one["receipt"]["failed_checks"] for one in segments] == [["nothing was seen"], [], []]
    assert record["receipt"]["device_verified"] is True
    assert record["device_verified"] is False, "of the first epoch's hardware nothing was seen"
    seconds = [row["train_seconds"] for row in read_metrics(tmp_path / "resumed" / METRICS_NAME)]
    mean = (seconds[2] + seconds[4]) / 2
    assert record["examples_per_second"] == pytest.approx(12 * 32 / mean, rel=0.01)
    assert record["train_seconds"] == pytest.approx(sum(seconds), abs=1e-3)
    parts = record["time_breakdown"]
    assert parts["step_seconds"] * 12 == pytest.approx(mean, rel=0.01)
    # Of all processes, as the seconds of training are.
    assert -0.01 < parts["training_seconds"] - record["train_seconds"] < 2
    assert parts["evaluation_seconds"] >= record["evaluation_seconds"]
    (row,) = scenarios([read_run(tmp_path / "resumed")])
    assert row.epoch_seconds.mean == pytest.approx(mean)


@pytest.mark.slow
def test_a_run_resumed_after_its_last_epoch_is_of_the_host_that_trained_it(
    trained, small_records, tmp_path, run_killed_after, monkeypatch
):
    from pipeline.hardware import receipt

    measure = receipt.measure
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "first")
        patch.setattr(receipt, "measure", lambda *how: measure(*how) | {"convolution_flops_per_second": 7.0})
        run_killed_after(2)
    record = run(small_records, tmp_path / "resumed", checkpoints=tmp_path / "checkpoints")
    assert record["epochs_restored"] == 2
    assert (tmp_path / "resumed" / WEIGHTS_NAME).read_bytes() == (trained[0] / WEIGHTS_NAME).read_bytes()
    assert (record["hostname"], record["finished_on"]) == ("first", socket.gethostname())
    (segment,) = record["segments"]
    assert (segment["hostname"], segment["receipt"]) == ("first", record["receipt"])
    assert record["reference_flops_per_second"] == 7.0
    read = read_run(tmp_path / "resumed")
    assert [(one.epoch, one.hostname) for one in read.resumed] == [(3, record["finished_on"])]
    assert remarks(read)[-1] == f"resumed on host {record['finished_on']} after the last epoch"


@pytest.mark.slow
def test_a_checkpoint_of_another_computation_is_refused_with_a_message(small_records, tmp_path, checkpoints, caplog):
    again = run(small_records, tmp_path / "again", checkpoints=checkpoints, precision="bfloat16")
    assert again["epochs_restored"] == 0
    assert [(one["first_epoch"], one["last_epoch"]) for one in again["segments"]] == [(1, 2)]
    assert "because it used {'precision': 'float32'}, not {'precision': 'bfloat16'}." in caplog.text


@pytest.mark.slow
def test_a_checkpoint_of_other_computation_flags_is_refused_with_a_message(
    small_records, tmp_path, checkpoints, monkeypatch, caplog
):
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")
    again = run(small_records, tmp_path / "again", checkpoints=checkpoints)
    assert (again["epochs_restored"], again["computation_flags"]) == (0, {"TF_NUM_INTRAOP_THREADS": "1"})
    assert "because it used {'computation_flags': {}}, not {'computation_flags': {'TF_NUM" in caplog.text


@pytest.mark.slow
def test_a_checkpoint_of_another_device_is_refused_with_a_message(
    small_records, tmp_path, checkpoints, monkeypatch, caplog
):
    monkeypatch.setattr("pipeline.machine.cpu_model", lambda: "another processor")
    again = run(small_records, tmp_path / "again", checkpoints=checkpoints)
    assert again["epochs_restored"] == 0
    assert "because it used {'device_name': " in caplog.text
    assert "not {'device_name': 'another processor" in caplog.text


@pytest.mark.slow
def test_a_damaged_checkpoint_is_left_out(small_records, tmp_path, checkpoints, caplog):
    state = checkpoints / "epoch-000001" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    again = run(small_records, tmp_path / "b", checkpoints=checkpoints)
    assert again["epochs_restored"] == 0
    assert "state.safetensors: expected sha256" in caplog.text


@pytest.mark.slow
def test_another_runs_checkpoint_is_not_taken(small_records, tmp_path, checkpoints):
    from pipeline.artifacts.manifest import write_manifest

    folder = checkpoints / "epoch-000001"
    (folder / "manifest.json").unlink()
    write_manifest(folder, stage="checkpoint", identity={"run": "e" * 64, "epoch": 1}, details={})
    assert run(small_records, tmp_path / "b", checkpoints=checkpoints)["epochs_restored"] == 0
