import time
from types import SimpleNamespace

import pytest
from training_runs import run

from pipeline.problems.problem import open_split
from pipeline.runs.record import STAGE_PHASES


def setup_module() -> None:
    global History, ProcessGroup, RUNTIME, timing, tf
    import tensorflow as tf

    from pipeline.hardware.tensorflow import RUNTIME
    from pipeline.training import timing
    from pipeline.training.process_group import ProcessGroup
    from pipeline.training.setup import History


@pytest.mark.slow
def test_the_phases_add_up_to_the_total_time(small_records, tmp_path, caplog):
    caplog.set_level("INFO")
    started = time.perf_counter()
    record = run(small_records, tmp_path / "a", profile_steps=1)
    wall = time.perf_counter() - started
    parts = [record["time_breakdown"][f"{part}_seconds"] for part in STAGE_PHASES]
    assert all(seconds > 0 for seconds in parts)
    assert 0.8 * wall <= sum(parts) <= wall
    # What comes after the last epoch is not silent.
    for words in (
        "Evaluating on the test split",
        "Saving the model",
        "Benchmarking the training step",
        "Profiling 1 training steps",
    ):
        assert words in caplog.text


@pytest.mark.parametrize("steps_per_execution", [1, 24, 32])
@pytest.mark.parametrize("step_seconds", [1e-4, 0.015, 0.1, 0.3, 0.37, 0.5, 1.6, 5.0])
def test_timing_a_step_is_bounded(step_seconds, steps_per_execution):
    steps = timing.steps_per_call(step_seconds, steps_per_execution)
    if not steps:
        assert 4 * step_seconds > timing.STEP_BUDGET_SECONDS, "a warm-up and three calls would have fitted"
        return
    assert 1 <= steps <= steps_per_execution
    assert 4 * steps * step_seconds <= timing.STEP_BUDGET_SECONDS
    assert timing.STEP_BUDGET_SECONDS + timing.INPUT_BUDGET_SECONDS <= 2


@pytest.mark.slow
def test_a_step_too_slow_to_time_is_left_out_with_a_message(small_records, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(timing, "STEP_BUDGET_SECONDS", 1e-6)
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
    from pipeline.artifacts.manifest import read_manifest
    from pipeline.streams.tf_data import InputStream

    split = open_split(small_records, read_manifest(small_records), "train")
    stream = InputStream(split, global_batch_size=32, seed=0, in_memory=False)
    rows = [{"epoch": 1, "train_seconds": 12 * 1.6}]
    # It cannot be called.
    model = SimpleNamespace(layers=(), steps_per_execution=12)
    runtime = SimpleNamespace(step_flops=lambda model, batch: 7.0 * len(batch[0]))
    placement = SimpleNamespace(runtime=runtime)
    given = {"model": model, "stream": stream, "placement": placement, "group": ProcessGroup(), "fine_tune": ""}
    parts = timing.measure(SimpleNamespace(**given, history=History(rows, [{"first_epoch": 1}])))
    assert parts["not_measured"] == "a step took 1.6 s with compilation, too long to repeat it"
    assert parts["step_seconds"] is None
    assert parts["step_flops"] == 7.0 * 32, "its operations are counted all the same"


@pytest.mark.slow
def test_the_train_function_takes_as_many_steps_as_there_are_batches(small_records, tmp_path, monkeypatch):
    # Fewer than one execution has: what makes timing a step cheap where an execution is long.
    seen = []
    measure = timing.measure

    def watch(setup):
        before = int(setup.model.optimizer.iterations)
        timing.step_alone_seconds(setup.model, setup.stream, RUNTIME, calls=3, steps=2)
        seen.append((setup.model.steps_per_execution, int(setup.model.optimizer.iterations) - before))
        return measure(setup)

    monkeypatch.setattr("pipeline.training.train.measure", watch)
    run(small_records, tmp_path / "a", epochs=1)
    assert seen == [(12, (1 + 3) * 2)]


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


def test_the_peak_of_every_gpu_is_counted_from_the_start_of_the_run(monkeypatch):
    # What no machine without a GPU can try: that the names are those TensorFlow gives its logical devices.
    gpus, reset = [SimpleNamespace(name=f"/device:GPU:{index}") for index in range(2)], []
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: gpus if kind == "GPU" else [])
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", reset.append)
    RUNTIME.reset_peak_memory()
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
    assert timing.input_wait_share(step=step, step_alone=step_alone, input_alone=input_alone) == share
