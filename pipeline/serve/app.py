"""Routes of the server."""

import asyncio
import contextlib
import html
import secrets
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
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
        task = asyncio.create_task(batches.run())
        yield
        task.cancel()
        model.save_counts()

    async def read(function: Callable, *arguments: object) -> Any:
        """Call a function in one of as many threads as there are cores, which bounds the memory of large images."""
        return await asyncio.get_running_loop().run_in_executor(readers, function, *arguments)

    # The pages of the API would load scripts from another server.
    app = FastAPI(
        openapi_url=None, lifespan=computing, exception_handlers={AnyHTTPException: _refuse, Exception: _fail}
    )
    if service.host in LOOPBACK:
        # Another site may have changed the address of its name to this machine.
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=LOOPBACK)
    app.get("/")(lambda: _page(model))
    for path in ("/healthz", "/v2/health/live", "/v2/health/ready"):
        app.get(path)(lambda: Response())
    app.get("/metrics")(lambda: Response(generate_latest(limits.registry), media_type=CONTENT_TYPE_LATEST))
    app.get("/v2")(lambda: {"name": "tensorcraft", "version": "2", "extensions": ["binary_tensor_data"]})
    app.post("/v2/repository/index")(lambda: [{"name": model.name, "version": "1", "state": "READY"}])

    path = f"/v2/models/{model.name}"
    app.get(path)(lambda: protocol.metadata(model))
    app.get(f"{path}/ready")(lambda: Response())

    @app.post(f"{path}/infer")
    async def infer(request: Request) -> Response:
        async with limits.admitted(request) as bounded:
            asked, inputs = await read(protocol.parse, request.headers, await bounded.body(), model)
            return protocol.reply(asked, await batches.outputs(inputs), model)

    @app.post("/predict")
    async def predict(request: Request) -> dict[str, Any]:
        async with limits.admitted(request) as bounded:
            try:
                example = await read(model.example, await _file(bounded))
            except UndecodableError as error:
                raise HTTPException(422, f"The file cannot be used: {error}.") from None
            (outputs,) = await batches.outputs(example)
            return model.answer(outputs)

    return app


async def _refuse(request: Request, error: AnyHTTPException) -> Response:
    text = error.detail
    if text == HTTPStatus(error.status_code).phrase:
        text = f"{request.method} {request.url.path}: {text.lower()}."
    return JSONResponse({"error": text}, error.status_code, error.headers)


async def _fail(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": "The server failed. Its log has the reason."}, 500)


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
