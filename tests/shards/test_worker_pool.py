"""The pool that starts Beam's workers on a machine of a cluster, asked as the engines ask it."""

import contextlib
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from types import SimpleNamespace

import psutil
import pytest

from tests.clusters import free_port


def setup_module() -> None:
    global beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2, grpc, worker_pool
    import grpc
    from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2

    from pipeline.shards import worker_pool


_SECONDS = 60


class Engine:
    """What an executor or a TaskManager opens for its workers; they wait for work until it is closed."""

    # No worker without work requests one.
    GetProcessBundleDescriptor = None

    def __init__(self) -> None:
        self.joined: queue.Queue[str] = queue.Queue()
        self._ends: queue.Queue[None] = queue.Queue()
        self._server = grpc.server(futures.ThreadPoolExecutor())
        beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def Control(self, responses, context):
        self.joined.put(dict(context.invocation_metadata())["worker_id"])
        self._ends.get()
        yield from ()

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        # Of each worker that it may have.
        for _ in range(2):
            self._ends.put(None)
        self._server.stop(grace=1).wait()

    def requests_worker(self, pool, process: psutil.Process) -> psutil.Process:
        """Request a worker of a pool, wait until it has joined, and return its process."""
        before = set(process.children())
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=self.address)
        request = beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1", control_endpoint=endpoint)
        assert not pool.StartWorker(request, timeout=_SECONDS).error
        assert self.joined.get(timeout=_SECONDS) == "1-1"
        [worker] = set(process.children()) - before
        return worker


@contextlib.contextmanager
def _serving(*flags: str) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-m", "pipeline.shards.worker_pool", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait_until_served(process: subprocess.Popen) -> None:
    assert any("workers are available" in line for line in process.stderr)


@pytest.fixture
def quiet_main(monkeypatch) -> dict[int, Callable]:
    """Keep ``main`` from changing this process. Returns the handlers of signals that it sets."""
    handlers: dict[int, Callable] = {}
    monkeypatch.setattr(worker_pool.signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(worker_pool.logging, "basicConfig", lambda **_: None)
    return handlers


# What SdkHarness does first, without the seconds that importing Beam takes.
LIGHT_WORKER = """
import sys, threading, grpc
method = "/org.apache.beam.model.fn_execution.v1.BeamFnControl/Control"
control = grpc.insecure_channel(sys.argv[1]).stream_stream(method)
for _ in control(iter(threading.Event().wait, True), metadata=[("worker_id", sys.argv[2])]):
    pass
"""


def test_nobody_can_stop_a_worker_by_its_name_and_it_ends_with_the_pool(monkeypatch):
    monkeypatch.setattr(worker_pool, "_WORKER", LIGHT_WORKER)
    pool = worker_pool.WorkerPool()
    requests = SimpleNamespace(StartWorker=lambda request, timeout: pool.StartWorker(request, None))
    with Engine() as first, Engine() as second:
        workers = [engine.requests_worker(requests, psutil.Process()) for engine in (first, second)]
        # Both engines call their worker by this name.
        pool.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"), None)
        assert all(worker.is_running() for worker in workers)
        pool.stop()
        assert not any(worker.is_running() for worker in workers)


@pytest.mark.slow
def test_a_worker_ends_with_its_own_engine_and_the_others_with_the_pool():
    port = free_port()
    with Engine() as first, Engine() as second, _serving(f"--service_port={port}") as process:
        _wait_until_served(process)
        pool = psutil.Process(process.pid)
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            requests = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
            ended = first.requests_worker(requests, pool)
            works = second.requests_worker(requests, pool)
            # Spark's executor that has no more to do. Both engines call their worker by this name.
            requests.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"), timeout=_SECONDS)
        first.close()
        psutil.wait_procs([ended], timeout=_SECONDS)
        assert not ended.is_running()
        assert works.is_running()
        process.terminate()
        assert process.wait(_SECONDS) == 0
        assert not works.is_running()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_server_and_the_pool(quiet_main, monkeypatch, by):
    stopped = []
    server, pool = (SimpleNamespace(stop=lambda name=name, **_: stopped.append(name)) for name in ("server", "pool"))
    # The signal comes as soon as the pool serves.
    monkeypatch.setattr(worker_pool, "serve", lambda *_: quiet_main[by](by, None) or (server, pool))
    monkeypatch.setattr(sys, "argv", ["worker_pool"])
    worker_pool.main()
    assert stopped == ["server", "pool"]


def test_a_pool_that_is_stopped_starts_no_more():
    pool, before = worker_pool.WorkerPool(), psutil.Process().children()
    pool.stop()
    assert "stopped" in pool.StartWorker(beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1"), None).error
    assert psutil.Process().children() == before


def test_a_port_that_is_taken_is_reported(quiet_main, monkeypatch, capsys):
    server, _ = worker_pool.serve("localhost", port := free_port())
    monkeypatch.setattr(sys, "argv", ["worker_pool", f"--service_port={port}"])
    with pytest.raises(SystemExit) as ended:
        worker_pool.main()
    server.stop(grace=None)
    assert ended.value.code == 1
    assert f"localhost:{port} cannot be listened on" in capsys.readouterr().err
