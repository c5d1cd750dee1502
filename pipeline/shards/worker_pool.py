"""A pool that starts Beam's Python workers on one machine of a cluster, for ``--environment_type=EXTERNAL``.

    python -m pipeline.shards.worker_pool --service_port=50000

It is asked as Beam's own pool is (``apache_beam.runners.worker.worker_pool_main``), and differs in three things:

- Every executor or TaskManager calls its first worker "1-1", and Beam's pool stops what was last started by that name:
  of two that share a pool, the one that is done first stops the other's worker, and Spark then waits without end. Here
  a worker ends where its engine closes the connection to it, and nobody can stop one by a name.
- It listens on this machine alone: whoever reaches it can have workers started.
- Workers run by the interpreter that the pool runs by, not by whatever is called ``python`` on the ``PATH``.
"""

import argparse
import logging
import signal
import subprocess
import sys
import threading
from concurrent import futures

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

_LOG = logging.getLogger("pipeline.shards.worker_pool")
# What is asked for comes as arguments, which nothing runs as code. The sizes are those of Beam's pool.
_WORKER = """
import sys
from apache_beam.runners.worker.sdk_worker import SdkHarness
SdkHarness(sys.argv[1], worker_id=sys.argv[2], state_cache_size=0, data_buffer_time_limit_ms=-1).run()
"""
_END_SECONDS = 10


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The service: a process for each worker that an engine asks for."""

    def __init__(self) -> None:
        self._workers: set[subprocess.Popen] = set()
        self._is_stopping = False
        self._lock = threading.Lock()

    def StartWorker(
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Start a worker that asks the engine at ``request.control_endpoint`` for work."""
        command = [sys.executable, "-c", _WORKER, request.control_endpoint.url, request.worker_id]
        try:
            # One that is started is known at once: stop() comes before it, or ends it.
            with self._lock:
                if self._is_stopping:
                    return beam_fn_api_pb2.StartWorkerResponse(error="the worker pool is being stopped")
                worker = subprocess.Popen(command, stdin=subprocess.DEVNULL)
                self._workers.add(worker)
        except OSError as error:
            return beam_fn_api_pb2.StartWorkerResponse(error=f"no worker could be started: {error}")
        _LOG.info("worker %s for %s: process %d", request.worker_id, request.control_endpoint.url, worker.pid)
        threading.Thread(target=self._wait_for, args=(worker,), daemon=True).start()
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Stop nothing: the name is not the worker's alone, and its engine closes the connection next."""
        return beam_fn_api_pb2.StopWorkerResponse()

    def stop(self) -> None:
        """End all workers, and start no more."""
        with self._lock:
            self._is_stopping, workers = True, list(self._workers)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            try:
                worker.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()

    def _wait_for(self, worker: subprocess.Popen) -> None:
        code = worker.wait()
        with self._lock:
            self._workers.discard(worker)
        _LOG.info("process %d ended with code %d", worker.pid, code)


def serve(host: str, port: int) -> tuple[grpc.Server, WorkerPool]:
    """Start the service.

    Raises:
        RuntimeError: the address is in use, as by another pool.
    """
    pool = WorkerPool()
    # Without it two pools could have one port, and each a part of what is asked.
    server = grpc.server(futures.ThreadPoolExecutor(), options=[("grpc.so_reuseport", 0)])
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f"{host}:{port}")
    server.start()
    return server, pool


def main() -> None:
    """Serve until SIGTERM or an interrupt, and take the workers along."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.shards.worker_pool",
        description="Start Beam's Python workers for the executors or TaskManagers of this machine.",
    )
    parser.add_argument("--service_port", type=int, default=50000, help="port that the engine asks (%(default)s)")
    parser.add_argument("--host", default="localhost", help="address to listen on (%(default)s: from here alone)")
    arguments = parser.parse_args()
    # force: Beam logs as it is imported, and so is configured already.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    ended = threading.Event()
    # Before the first worker may be asked for; the second signal of someone impatient changes nothing.
    for by in (signal.SIGTERM, signal.SIGINT):
        signal.signal(by, lambda *_: ended.set())
    try:
        server, pool = serve(arguments.host, arguments.service_port)
    except RuntimeError as error:
        parser.exit(1, f"{arguments.host}:{arguments.service_port} cannot be listened on: {error}\n")
    _LOG.info("workers are available at %s:%d", arguments.host, arguments.service_port)
    ended.wait()
    server.stop(grace=None)
    pool.stop()


if __name__ == "__main__":
    main()
