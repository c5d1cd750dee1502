"""The command that an engine starts as a Python worker of Beam."""

import sys
from concurrent import futures
from importlib import import_module

import pytest
from luigi_process import PROJECT


def setup_module() -> None:
    global api, grpc, sdk_worker_main, services, workers
    import grpc
    from apache_beam.portability import api
    from apache_beam.portability.api import beam_provision_api_pb2_grpc as services
    from apache_beam.runners.worker import sdk_worker_main

    from pipeline.shards import workers


class Engine:
    """The provision service of an executor or a TaskManager."""

    def GetProvisionInfo(self, request, context):
        assert ("worker_id", "1-1") in context.invocation_metadata()
        endpoints, provision = api.endpoints_pb2, api.beam_provision_api_pb2
        info = provision.ProvisionInfo(
            control_endpoint=endpoints.ApiServiceDescriptor(url="localhost:1"),
            logging_endpoint=endpoints.ApiServiceDescriptor(url="localhost:2"),
            runner_capabilities=["a", "b"],
        )
        info.pipeline_options.update({"beam:option:job_name:v1": "records"})
        return provision.GetProvisionInfoResponse(info=info)


@pytest.fixture
def endpoint():
    server = grpc.server(futures.ThreadPoolExecutor())
    services.add_ProvisionServiceServicer_to_server(Engine(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(grace=None)


def test_beams_worker_gets_what_the_engine_provides(endpoint, monkeypatch):
    started = []
    monkeypatch.setattr(workers.os, "environ", {})
    monkeypatch.setattr(sdk_worker_main, "main", lambda _: started.append(dict(workers.os.environ)))
    monkeypatch.setattr(
        sys, "argv", ["tensorcraft-worker", "--id=1-1", f"--provision_endpoint={endpoint}", "--semi_persist_dir=/tmp"]
    )
    workers.main()
    (environment,) = started
    assert environment["WORKER_ID"] == "1-1"
    assert '"localhost:1"' in environment["CONTROL_API_SERVICE_DESCRIPTOR"]
    assert '"localhost:2"' in environment["LOGGING_API_SERVICE_DESCRIPTOR"]
    assert '"records"' in environment["PIPELINE_OPTIONS"]
    assert environment["RUNNER_CAPABILITIES"] == "a b"


def test_the_project_installs_the_command():
    import tomllib

    scripts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["tensorcraft-worker"].partition(":")
    assert callable(getattr(import_module(module), function))
