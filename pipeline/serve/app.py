"""Routes of the server."""

import asyncio
import contextlib
import html
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import HTMLResponse, JSONResponse

from pipeline import machine
from pipeline.serve import LOOPBACK, Service, protocol
from pipeline.serve.batching import Batches
from pipeline.serve.limits import Limits
from pipeline.serve.model import ServedModel
from pipeline.sources.files import UndecodableError


def app_of(service: Service, model: ServedModel) -> FastAPI:
    """Return the application that answers with a model."""
    limits, readers = Limits(service), ThreadPoolExecutor(machine.granted_cores(), "reader")
    batches = Batches(model.outputs, limits.batches.observe)

    @contextlib.asynccontextmanager
    async def computing(_: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(task) for task in (batches.run(), save_counts())]
        yield
        for task in tasks:
            task.cancel()
        model.save_counts()

    async def save_counts() -> None:
        while True:
            await asyncio.sleep(service.save_counts_seconds)
            await read(model.save_counts)

    async def read(function: Callable, *arguments: object) -> Any:
        """Call a function in one of as many threads as there are cores, which bounds the memory of large images."""
        return await asyncio.get_running_loop().run_in_executor(readers, function, *arguments)

    # The pages of the API would load scripts from another server.
    app = FastAPI(
        openapi_url=None, lifespan=computing, exception_handlers={AnyHTTPException: _refuse, Exception: _fail}
    )
    if service.is_local:
        # Another site may have changed the address of its name to this machine.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=(*LOOPBACK, service.address.rpartition(":")[0]))
        app.router.dependencies.append(Depends(_check_origin))
    app.get("/")(lambda: _page(model))
    for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
        app.api_route(path, methods=["GET", "HEAD"])(lambda: Response())
    app.get("/metrics")(lambda: Response(generate_latest(limits.registry), media_type=CONTENT_TYPE_LATEST))
    app.get("/v2")(lambda: {"name": "tensorcraft", "version": "2", "extensions": ["binary_tensor_data"]})
    app.post("/v2/repository/index")(lambda: [{"name": model.name, "version": "1", "state": "READY"}])

    path = f"/v2/models/{model.name}"
    for prefix in (path, f"{path}/versions/1"):
        app.get(prefix)(lambda: protocol.metadata(model))
        app.get(f"{prefix}/ready")(lambda: Response())

    @app.post(f"{path}/infer")
    @app.post(f"{path}/versions/1/infer")
    async def infer(request: Request) -> Response:
        async with limits.admitted(request) as bounded:
            asked, inputs = await read(protocol.parse, request.headers, await bounded.body(), model)
            return protocol.reply(asked, model.counted(await batches.outputs(inputs)), model)

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


async def _check_origin(request: Request) -> None:
    host, origin = request.headers["host"], request.headers.get("origin")
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
