"""The pool that starts Beam's workers on a machine of a cluster, asked as the engines ask it."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures

import psutil
import pytest

from tests.clusters import free_port


def setup_module() -> None:
    global WorkerPool, beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2, grpc
    import grpc
    from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc, endpoints_pb2

    from pipeline.shards.worker_pool import WorkerPool


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

    def asks(self, pool: "WorkerPool") -> psutil.Process:
        before = set(_below())
        endpoint = endpoints_pb2.ApiServiceDescriptor(url=self.address)
        request = beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1", control_endpoint=endpoint)
        assert not pool.StartWorker(request, None).error
        assert self.joined.get(timeout=_SECONDS) == "1-1"
        [worker] = set(_below()) - before
        return worker


def _below() -> list[psutil.Process]:
    return psutil.Process().children()


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


def test_a_worker_ends_with_its_own_engine_though_two_call_theirs_by_one_name():
    pool = WorkerPool()
    with Engine() as first, Engine() as second:
        ended, works = first.asks(pool), second.asks(pool)
        # Spark's executor that has no more to do.
        pool.StopWorker(beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"), None)
        first.close()
        psutil.wait_procs([ended], timeout=_SECONDS)
        assert not ended.is_running()
        assert works.is_running()
        pool.stop()
        assert not works.is_running()


def test_a_pool_that_is_stopped_starts_no_more():
    pool, before = WorkerPool(), _below()
    pool.stop()
    assert "stopped" in pool.StartWorker(beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1"), None).error
    assert _below() == before


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_pool_that_is_ended_takes_its_workers_along(by):
    port = free_port()
    with Engine() as engine, _serving(f"--service_port={port}") as process:
        _wait_until_served(process)
        with grpc.insecure_channel(f"localhost:{port}") as channel:
            ask = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel).StartWorker
            endpoint = endpoints_pb2.ApiServiceDescriptor(url=engine.address)
            ask(beam_fn_api_pb2.StartWorkerRequest(worker_id="1-1", control_endpoint=endpoint), timeout=_SECONDS)
        engine.joined.get(timeout=_SECONDS)
        [worker] = psutil.Process(process.pid).children()
        os.kill(process.pid, by)
        assert process.wait(_SECONDS) == 0
        assert not worker.is_running()


def test_a_port_that_is_taken_is_told():
    with _serving(f"--service_port={(port := free_port())}") as first:
        _wait_until_served(first)
        with _serving(f"--service_port={port}") as second:
            assert second.wait(_SECONDS) == 1
            assert f"localhost:{port} cannot be listened on" in second.stderr.read()
