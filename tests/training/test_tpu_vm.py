"""Of several TPU VMs each finds out which it is, as Google's metadata server says."""

import contextlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline import machine
from pipeline.errors import SettingsError
from pipeline.settings.training import TrainSettings
from pipeline.training import process_group as subject
from pipeline.training.process_group import ProcessGroup, process_group

SETTINGS = TrainSettings(processes=4, global_batch_size=128)


@pytest.fixture
def server(monkeypatch):
    """A metadata server: its attributes, and what it was asked for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/computeMetadata/v1/instance/attributes/")
            asked.append((name, self.headers["Metadata-Flavor"]))
            found = attributes.get(name)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write((found or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    attributes, asked = {}, []
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{http.server_port}")
    for name in ("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "SLURM_PROCID", "JOB_COMPLETION_INDEX", "TPU_SKIP_MDS_QUERY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(machine, "tpu_chips", lambda: ["TPU v5e"] * 4)
    subject._metadata.cache_clear()
    yield attributes, asked
    http.shutdown()
    http.server_close()
    subject._metadata.cache_clear()


def member() -> ProcessGroup:
    return process_group(SETTINGS)


@pytest.mark.parametrize(
    ("endpoints", "host"),
    [
        ("unknown:unknown:10.0.0.7,unknown:unknown:10.0.0.8,a:1:10.0.0.9,b:2:10.0.0.10", "10.0.0.7"),
        ("t-0.internal,t-1.internal,t-2.internal,t-3.internal", "t-0.internal"),
    ],
)
def test_the_server_says_which_worker_this_is_and_where_the_first_is(server, endpoints, host):
    attributes, asked = server
    attributes |= {"agent-worker-number": "2\n", "worker-network-endpoints": endpoints}
    assert member() == ProcessGroup(4, 2, host, 8476)
    assert {flavour for _, flavour in asked} == {"Google"}


@pytest.mark.parametrize("name", ["SLURM_PROCID", "TPU_WORKER_ID", "JOB_COMPLETION_INDEX", "TPU_SKIP_MDS_QUERY"])
def test_metadata_is_not_requested_if_the_environment_has_it(server, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    with contextlib.suppress(SettingsError):
        member()
    assert server[1] == []


def test_metadata_is_not_requested_without_chips_or_for_one_process(server, monkeypatch):
    assert process_group(TrainSettings()) == ProcessGroup()
    monkeypatch.setattr(machine, "tpu_chips", list)
    with pytest.raises(SettingsError, match=r"\[Train\] process_id"):
        member()
    assert server[1] == []


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"agent-worker-number": "0"},
        {"agent-worker-number": "x", "worker-network-endpoints": "a,b"},
        {"agent-worker-number": "0", "worker-network-endpoints": "a b;c"},
    ],
)
def test_missing_metadata_require_settings(server, attributes):
    server[0].update(attributes)
    with pytest.raises(SettingsError, match=r"\[Train\] process_id"):
        member()


def test_a_server_that_is_not_there_is_none(server, monkeypatch):
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:9")
    with pytest.raises(SettingsError, match=r"\[Train\] process_id"):
        member()
