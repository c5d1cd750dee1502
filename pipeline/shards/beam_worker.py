"""The command ``tensorcraft-worker``, a Beam Python worker for ``--environment_type=PROCESS``.

Spark executors and Flink TaskManagers start it on their machine. It requests the options of the job and the addresses
of their services. Beam's worker then runs in this process.
"""

import argparse
import os

import grpc
from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format


def main() -> None:
    """Run a Beam worker until the engine closes the connection."""
    parser = argparse.ArgumentParser(prog="tensorcraft-worker", description=main.__doc__)
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
