"""Starts the server of a run, and stops it after the requests that have begun."""

import logging
import socket
import tempfile
from pathlib import Path
from typing import Any

import uvicorn

from pipeline.errors import SettingsError
from pipeline.problems import problem_of_records
from pipeline.runs.export import write_onnx
from pipeline.serve import Service
from pipeline.serve.app import app_of
from pipeline.serve.model import ServedModel
from pipeline.stage_process import GRACE_SECONDS

_logger = logging.getLogger(__name__)


def serve(service: Service, manifest: dict[str, Any]) -> None:
    """Answer requests until SIGINT or SIGTERM. ``manifest`` is that of the run's records."""
    try:
        listener = socket.create_server((service.host, service.port), backlog=2048)
    except (OSError, OverflowError) as error:
        address = f"{service.host}:{service.port}"
        raise SettingsError(f"--port: cannot listen on {address} ({error}). Pass another port or host.") from None
    model, port = load(service, manifest), listener.getsockname()[1]
    _logger.info("Serving %s at http://%s:%d. Press Ctrl-C to stop.", model.name, service.host, port)
    server_of(service, model).run(sockets=[listener])


def load(service: Service, manifest: dict[str, Any]) -> ServedModel:
    """Convert the model of the run to ONNX and load it."""
    task = problem_of_records(manifest).task(manifest)
    if task.label_shape:
        raise SettingsError(f"RUN: expected a run on images, or on texts with labels, got {service.job.problem}.")
    with tempfile.TemporaryDirectory(prefix="tensorcraft-serve-") as folder:
        file = Path(folder) / "model.onnx"
        described = write_onnx(Path(service.job.run), manifest, file, model=service.job.model)
        return ServedModel(service.job, task, file, described.get("thresholds", ()))


def server_of(service: Service, model: ServedModel) -> uvicorn.Server:
    """Return the server, which stops within the grace period of its parent process."""
    grace = int(GRACE_SECONDS) - 5
    options = {"log_config": None, "access_log": False, "server_header": False, "ws": "none"}
    return uvicorn.Server(uvicorn.Config(app_of(service, model), timeout_graceful_shutdown=grace, **options))
