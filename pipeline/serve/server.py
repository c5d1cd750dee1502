"""Starts the server of a run, and stops it after the requests that have begun."""

import logging
import socket
import tempfile
from dataclasses import replace
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
    listener = listening(service)
    service, model = replace(service, port=listener.getsockname()[1]), load(service, manifest)
    _logger.info("Serving %s at http://%s. Press Ctrl-C to stop.", model.name, service.address)
    server_of(service, model).run(sockets=[listener])


def listening(service: Service) -> socket.socket:
    """Return a socket that accepts connections."""
    family = socket.AF_INET6 if ":" in service.host else socket.AF_INET
    try:
        return socket.create_server((service.host, service.port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        raise SettingsError(f"--host or --port: cannot listen on {service.address} ({error}). Pass others.") from None


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
