"""TensorBoard itself, started as make tensorboard starts it, and asked for what it shows of a run."""

import gzip
import json
import re
import subprocess
import sys
import time
import urllib.request

import pytest
from luigi_process import PROJECT
from training_runs import run

WAIT_SECONDS = 120
PROFILED_STEPS = 3


@pytest.fixture(scope="module")
def tensorboard(small_records, tmp_path_factory):
    """A function that asks a TensorBoard on a free port of loopback for a path of its data."""
    root = tmp_path_factory.mktemp("root")
    (root / "runs").mkdir()
    run(small_records, root / "runs" / "cnn", epochs=2, profile_steps=PROFILED_STEPS)
    training_recipe = re.search(
        r"^\t@(\$\(BIN\)/python .*tensorboard.*)$", (PROJECT / "Makefile").read_text(), re.MULTILINE
    )[1]
    known = {"$(BIN)/python": sys.executable, "$(ARGS)": f"--port 0 --load_fast=false --Storage-root {root}"}
    for name, value in known.items():
        training_recipe = training_recipe.replace(name, value)

    with subprocess.Popen(training_recipe.split(), stderr=subprocess.PIPE, text=True, cwd=PROJECT) as process:
        try:
            address = next(found[0] for line in process.stderr if (found := re.search(r"http://[^ ]+", line)))
            yield lambda path, **body: ask(f"{address.rstrip('/')}/data/{path}", body)
        finally:
            # Its own end on SIGTERM is an exception, which is lost now and then and leaves it serving.
            process.kill()


def test_tensorboard_is_started_on_loopback_alone(first_run, monkeypatch):
    started = []
    monkeypatch.setattr("os.execv", lambda _, program: started.append(program))
    done = first_run.command("tensorboard", "--port", "0")
    # Only what is started in its place goes on.
    assert done.returncode == 0, done.stderr
    ((*_, logdir, host, port, _),) = started
    assert (logdir, host, port) == (f"--logdir={first_run.root / 'runs'}", "--host=127.0.0.1", "--port=0")


def ask(address: str, body: dict):
    """What TensorBoard answers, once it has read the run."""
    assert address.startswith("http://127.0.0.1:"), "on loopback alone"
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS) as answer:
            content = answer.read()
        # The profiler's plugin compresses whether it was asked to or not.
        found = json.loads(gzip.decompress(content) if answer.headers["Content-Encoding"] == "gzip" else content)
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{address} has nothing to show")


@pytest.mark.slow
def test_tensorboard_shows_the_scalars_of_train_and_test_by_epoch(tensorboard):
    tags = tensorboard("plugin/scalars/tags")
    assert set(tags) == {"cnn/tensorboard/train", "cnn/tensorboard/test"}
    assert set(tags["cnn/tensorboard/test"]) == {"epoch_accuracy", "epoch_loss"}
    points = tensorboard("plugin/scalars/scalars?run=cnn/tensorboard/test&tag=epoch_accuracy")
    assert [step for _, step, _ in points] == [1, 2]


@pytest.mark.slow
def test_tensorboard_shows_the_images_of_mistakes(tensorboard):
    assert "mistakes" in tensorboard("plugin/images/tags")["cnn/tensorboard"]
    images = tensorboard("plugin/images/images?run=cnn/tensorboard&tag=mistakes&sample=0")
    assert images[0]["step"] == 2
    assert len(images) == 1


@pytest.mark.slow
def test_tensorboard_shows_the_hyper_parameters_with_the_metrics_they_led_to(tensorboard):
    tensorboard("plugin/scalars/tags")
    found = tensorboard("plugin/hparams/experiment", experimentName="")
    assert {info["name"] for info in found["hparamInfos"]} >= {"training_recipe", "global_batch_size", "epochs", "seed"}
    assert {(info["name"]["group"], info["name"]["tag"]) for info in found["metricInfos"]} == {
        ("train", "examples_per_second"), ("test", "epoch_accuracy"), ("test", "epoch_loss")}  # fmt: skip


@pytest.mark.slow
def test_tensorboard_shows_the_trace_of_the_steps_that_were_profiled(tensorboard):
    (profiled,) = tensorboard("plugin/profile/runs")
    assert {"overview_page", "trace_viewer@"} <= set(tensorboard(f"plugin/profile/run_tools?run={profiled}"))
    (host,) = tensorboard(f"plugin/profile/hosts?run={profiled}&tag=trace_viewer")
    trace = tensorboard(f"plugin/profile/data?run={profiled}&tag=trace_viewer&host={host['hostname']}")
    names = [event.get("name", "") for event in trace["traceEvents"]]
    # At least one layer learns in each step, whatever its kernel is called here.
    assert sum("Conv2DBackpropFilter" in name for name in names) >= PROFILED_STEPS
