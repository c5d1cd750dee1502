"""The server of a run. It stops after the requests that have begun."""

import asyncio
import contextlib
import html
import logging
import re
import secrets
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.responses import HTMLResponse, JSONResponse

from pipeline import machine
from pipeline.errors import SettingsError
from pipeline.problems import problem_of_records
from pipeline.runs.export import write_onnx
from pipeline.serve import LOOPBACK, Service, inference
from pipeline.serve.inference import ServedModel
from pipeline.serve.limits import Batches, Limits
from pipeline.sources.files import UndecodableError
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
    return uvicorn.Server(uvicorn.Config(_app(service, model), timeout_graceful_shutdown=grace, **options))


def _app(service: Service, model: ServedModel) -> FastAPI:
    limits, readers = Limits(service), ThreadPoolExecutor(machine.granted_cores(), "reader")
    batches = Batches(model.outputs, limits.batches.observe)

    @contextlib.asynccontextmanager
    async def computing(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(task) for task in (batches.run(), save_counts())]
        yield
        for task in tasks:
            task.cancel()
        model.watch.save()

    async def save_counts() -> None:
        while True:
            await asyncio.sleep(service.save_counts_seconds)
            await read(model.watch.save)

    async def read(function: Callable, *arguments: object) -> Any:
        """Call a function in one of as many threads as there are cores, which bounds the memory of large images."""
        return await asyncio.get_running_loop().run_in_executor(readers, function, *arguments)

    # The pages of the API would load scripts from another server.
    handlers = {AnyHTTPException: _refuse, Exception: _fail}
    app = FastAPI(openapi_url=None, lifespan=computing, exception_handlers=handlers)
    if service.is_local:
        app.state.hosts = {*LOOPBACK, service.address.rpartition(":")[0]}
        app.router.dependencies.append(Depends(_check_site))
    app.get("/")(lambda: _page(model))
    for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
        app.api_route(path, methods=["GET", "HEAD"])(lambda: Response())
    app.get("/metrics")(lambda: Response(generate_latest(limits.registry), media_type=CONTENT_TYPE_LATEST))
    app.get("/v2")(lambda: {"name": "tensorcraft", "version": "2", "extensions": ["binary_tensor_data"]})
    app.post("/v2/repository/index")(lambda: [{"name": model.name, "version": "1", "state": "READY"}])

    async def infer(request: Request) -> Response:
        async with limits.admitted(request) as bounded:
            asked, inputs = await read(inference.parse, request.headers, await bounded.body(), model)
            return inference.reply(asked, model.counted(await batches.outputs(inputs)), model)

    path = f"/v2/models/{model.name}"
    for prefix in (path, f"{path}/versions/1"):
        app.get(prefix)(lambda: inference.metadata(model))
        app.get(f"{prefix}/ready")(lambda: Response())
        app.post(f"{prefix}/infer")(infer)

    @app.post("/predict")
    async def predict(request: Request) -> dict[str, Any]:
        async with limits.admitted(request) as bounded:
            try:
                example, sides = await read(model.example, await _file(bounded))
            except UndecodableError as error:
                raise HTTPException(422, f"The file cannot be used: {error}.") from None
            return model.answer(*model.counted(await batches.outputs(example), sides))

    return app


async def _refuse(request: Request, error: AnyHTTPException) -> Response:
    text = error.detail
    if error.status_code in (404, 405):
        text = f"{request.method} {request.url.path}: {text.lower()}."
    return JSONResponse({"error": text}, error.status_code, error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The server failed. Its log has the reason."}, 500)


async def _check_site(request: Request) -> None:
    """Refuse requests of other sites, which may also have changed the address of their name to this machine."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if re.sub(r":\d+$", "", host) not in request.app.state.hosts:
        raise HTTPException(400, f"Host: expected {' or '.join(LOOPBACK)}, got {host:.200}. Pass --host for others.")
    if request.method == "POST" and origin is not None and origin.partition("://")[2] != host:
        raise HTTPException(403, f"Origin: expected {host}, got {origin:.200}. The server accepts its own page only.")


async def _file(request: Request) -> bytes:
    """Return the body, or the first field of a form."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await request.body()
    async with request.form(max_files=1, max_fields=1) as form:
        field = next(iter(form.values()), "")
        return await field.read() if isinstance(field, UploadFile) else field.encode()


def _page(model: ServedModel) -> Response:
    """Return the page, whose script and style are the only ones that a browser may use."""
    text, nonce = files("pipeline.serve").joinpath("page.html").read_text(encoding="utf-8"), secrets.token_urlsafe()
    kind = "image" if model.has_images else "text"
    for mark, value in {"NONCE": nonce, "MODEL": html.escape(model.name), "KIND": kind}.items():
        text = text.replace(f"[[{mark}]]", value)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return HTMLResponse(text, headers=headers)
