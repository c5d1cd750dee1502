"""Registration of worker processes, after a check of their code and packages, and the command that starts one.

The identity of the records contains the code and packages of the submitting process. A worker with other versions ends
the job at its first block.
"""

import argparse
import json
import os
import socket
import threading
import uuid
from functools import cache

from pipeline.artifacts.fingerprint import code_digests, fingerprint, package_versions
from pipeline.errors import EngineUnavailableError
from pipeline.shards.shared import Shared

#: Packages that can change a byte of the records.
PACKAGES = ("apache-beam", "numpy", "pillow", "pillow-heif", "protobuf", "tensorflow", "tensorflow-datasets")
#: Entry module of the job's code.
ENTRY = "pipeline.shards.job"
_EXPECTED, _WORKERS = "expected.json", "workers"
_signing_in = threading.Lock()


def expect(shared: Shared) -> None:
    """Write the versions of code and packages that workers must have."""
    shared.write(_EXPECTED, json.dumps(_versions()).encode())


def sign_in(shared: Shared) -> None:
    """Register this worker process, once per job. EngineUnavailableError: it has other code, packages or folders."""
    # Several threads may start at the same time.
    with _signing_in:
        _sign_in(shared)


@cache
def _sign_in(shared: Shared) -> None:
    versions, worker = _versions(), f"Beam worker on {socket.gethostname()} (process {os.getpid()})"
    try:
        expected = json.loads(shared.read(_EXPECTED))
    except OSError as error:
        raise EngineUnavailableError(f"{worker} cannot read {shared}: {error.strerror}. {shared.remedy}") from error
    differing = (name for name in expected if versions.get(name) != expected[name])
    if differ := [f"{name} {versions.get(name)} instead of {expected[name]}" for name in differing]:
        raise EngineUnavailableError(
            f"{worker} differs from the process that submitted the job: {', '.join(differ)}. Install the same version "
            "of this project with the same lock on all workers, and restart them."
        )
    shared.write(f"{_WORKERS}/{uuid.uuid4().hex}", socket.gethostname().encode())


def signed_in(shared: Shared) -> dict[str, int]:
    """Number of ``hosts`` and ``processes`` that registered, including those that died."""
    hosts = [shared.read(name) for name in shared.names(_WORKERS)]
    return {"hosts": len(set(hosts)), "processes": len(hosts)}


def _versions() -> dict[str, str]:
    return {**package_versions(PACKAGES), "code of the project": fingerprint(code_digests(ENTRY))[:12]}


def main() -> None:
    """Run a Beam worker for ``--environment_type=PROCESS``, until the engine closes the connection.

    Spark executors and Flink TaskManagers start it on their machine. It requests the options of the job and the
    addresses of their services.
    """
    # Luigi's process imports this module, but no Beam.
    import grpc
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
    from apache_beam.runners.worker import sdk_worker_main
    from google.protobuf import json_format, text_format

    parser = argparse.ArgumentParser(prog="tensorcraft-worker", description="Run a Python worker of Beam.")
    parser.add_argument("--id", required=True, help="name of this worker in the engine")
    parser.add_argument("--provision_endpoint", required=True, help="address of the engine's provision service")
    arguments, _ = parser.parse_known_args()
    with grpc.insecure_channel(arguments.provision_endpoint) as channel:
        # The engine identifies the worker by this header.
        stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
        request = beam_provision_api_pb2.GetProvisionInfoRequest()
        info = stub.GetProvisionInfo(request, metadata=[("worker_id", arguments.id)], timeout=60).info
    os.environ["WORKER_ID"] = arguments.id
    os.environ["PIPELINE_OPTIONS"] = json_format.MessageToJson(info.pipeline_options)
    os.environ["CONTROL_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(info.control_endpoint)
    os.environ["LOGGING_API_SERVICE_DESCRIPTOR"] = text_format.MessageToString(info.logging_endpoint)
    os.environ["RUNNER_CAPABILITIES"] = " ".join(info.runner_capabilities)
    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
