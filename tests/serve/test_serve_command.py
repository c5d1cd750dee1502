"""tensorcraft serve: its flags, and a server that stops when it is asked to."""

import re
import signal
import socket
import subprocess
import sys

import pytest
from luigi_process import IN_CHILD, PROJECT, Luigi
from report_runs import write_run
from served import ALONE, encoded

pytest.importorskip("fastapi", reason="the optional packages of serve are not installed")


@pytest.fixture
def luigi(tmp_path):
    return Luigi(tmp_path / "own", tmp_path / "no data")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("mlp",), "RUN: expected a run in "),
        (("champion",), "RUN: expected a champion in "),
        (("cnn-1",), "RUN: expected a finished run with weights.safetensors, got "),
        (("--timeout", "0"), "--timeout: expected 0.000001 to 1000000, got 0.0."),
        (("--timeout", "nan"), "--timeout: expected 0.000001 to 1000000, got nan."),
        (("--max-body", "much"), "--max-body: invalid float value: 'much'"),
        (("--max-body", "1e-7"), "--max-body: expected 0.000001 to 1000000, got 1e-07."),
        (("--concurrency", "0"), "--concurrency: expected 1 to 1000000, got 0."),
        (("--concurrency", "1.5"), "--concurrency: invalid int value: '1.5'"),
    ],
)
def test_a_wrong_run_or_limit_is_refused(flags, message, luigi):
    write_run(luigi.root / "runs" / "cnn-1")
    done = luigi.command("serve", *flags)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("name", ["onnx", "python_multipart", "uvicorn"])
def test_a_package_that_is_not_installed_is_named(name, luigi, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    assert f"serve: the package {name} is not installed. Install it with: " in luigi.command("serve").stderr


def test_a_port_in_use_and_a_model_of_next_tokens_are_refused():
    from pipeline.errors import SettingsError
    from pipeline.predict import Job
    from pipeline.serve import Service
    from pipeline.serve.server import load, serve

    with socket.create_server(("127.0.0.1", 0)) as used:
        port = used.getsockname()[1]
        with pytest.raises(SettingsError, match=f"--host or --port: cannot listen on 127.0.0.1:{port} "):
            serve(Service(Job("run", ("a",)), port=port), {})
    with pytest.raises(SettingsError, match=r"--host or --port: cannot listen on \[::2\]:0 "):
        serve(Service(Job("run", ("a",)), host="::2"), {})
    spec = {"tokens": {"shape": (9,), "dtype": "uint8"}}
    manifest = {"problem": "next_token", "feature_spec": spec, "label_names": ["a", "b"]}
    with pytest.raises(SettingsError, match="RUN: expected a run on images, or on texts with labels, got next_token"):
        load(Service(Job("run", ("a", "b"), "next_token", None)), manifest)


@pytest.mark.slow
def test_a_signal_stops_the_server_after_the_requests_that_have_begun(first_run, tmp_path, request):
    import httpx

    luigi = first_run.copy(tmp_path)
    command = [sys.executable, "-m", "tasks", "serve", "--port", "0"]
    options = {"env": luigi.environment(IN_CHILD), "cwd": PROJECT, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **options)
    request.addfinalizer(process.kill)
    lines = []
    while not lines or "Press Ctrl-C" not in lines[-1]:
        lines.append(process.stderr.readline())
        assert lines[-1], "".join(lines)
    address = re.search(r"http://\S+:\d+", lines[-1])[0]

    def parts():
        image = encoded(220)
        yield image[:10]
        # A request that the server has not read yet has not begun.
        while "tensorcraft_active_requests 1.0" not in httpx.get(f"{address}/metrics", **ALONE).text:
            pass
        process.send_signal(signal.SIGTERM)
        # The server no longer accepts connections.
        while True:
            try:
                httpx.get(f"{address}/healthz", **ALONE)
            except httpx.TransportError:
                break
        yield image[10:]

    answer = httpx.post(f"{address}/predict", content=parts(), **ALONE)
    (name,) = luigi.artifacts("runs")
    assert answer.json()["model"] == name
    assert len(answer.json()["labels"]) == 1
    assert process.wait(300) == 0
