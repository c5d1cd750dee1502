"""Limits and batches of requests, and the metrics of the server."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pipeline.serve import Service

#: Greatest number of examples that the model computes at once. A larger request becomes several batches.
MAX_BATCH = 32
# Time for other requests to join the first one. While a batch is computed, requests wait anyway.
_WAIT_SECONDS = 0.002


class Limits:
    """Admits as many requests at once as the service allows, each for a limited time. The metrics count them."""

    def __init__(self, service: Service) -> None:
        self._service, self._slots = service, asyncio.Semaphore(service.concurrency)
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter("tensorcraft_requests", "Predictions.", ["status"], registry=self.registry)
        self._in_work = Gauge("tensorcraft_active_requests", "Predictions in work or waiting.", registry=self.registry)
        self._seconds = Histogram("tensorcraft_request_seconds", "Time of a prediction.", registry=self.registry)
        options = {"buckets": (1, 2, 4, 8, 16, 32), "registry": self.registry}
        self.batches = Histogram("tensorcraft_batch_examples", "Examples of a batch.", **options)

    @contextlib.asynccontextmanager
    async def admitted(self, request: Request) -> AsyncIterator["BoundedRequest"]:
        """Context of a prediction. HTTPException: there are too many, or this one takes too long."""
        status, seconds = 500, self._service.timeout_seconds
        try:
            if self._slots.locked():
                raise HTTPException(503, "The server is busy. Try again later.", {"Retry-After": "1"})
            with self._in_work.track_inprogress(), self._seconds.time():
                async with self._slots, asyncio.timeout(seconds):
                    yield BoundedRequest(request, self._service.max_body_bytes)
            status = 200
        except TimeoutError:
            raise HTTPException(status := 503, f"The request took more than {seconds:g} s.") from None
        except ClientDisconnect:
            raise HTTPException(status := 499, "The client closed the connection.") from None
        except HTTPException as error:
            status = error.status_code
            raise
        finally:
            self._requests.labels(str(status)).inc()


class BoundedRequest(Request):
    """Request whose body must not be too large."""

    def __init__(self, request: Request, max_bytes: int) -> None:
        super().__init__(request.scope, request.receive)
        self._max_bytes = max_bytes

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body."""
        left, refusal = self._max_bytes, f"body: expected at most {self._max_bytes:,} bytes, got more."
        if int(self.headers.get("content-length", "0")) > left:
            raise HTTPException(413, refusal)
        async for part in super().stream():
            left -= len(part)
            if left < 0:
                raise HTTPException(413, refusal)
            yield part


class Batches:
    """Computes batches in one thread. ``observe`` gets the size of each."""

    def __init__(self, outputs: Callable[[np.ndarray], np.ndarray], observe: Callable[[int], object]) -> None:
        self._outputs, self._observe = outputs, observe
        self._waiting: deque[tuple[np.ndarray, asyncio.Future]] = deque()
        self._arrived, self._thread = asyncio.Event(), ThreadPoolExecutor(1, "model")

    async def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """Return the outputs (batch, …) of inputs (batch, …) as soon as their batches are computed."""
        futures = []
        for start in range(0, len(inputs), MAX_BATCH):
            futures.append(asyncio.get_running_loop().create_future())
            self._waiting.append((inputs[start : start + MAX_BATCH], futures[-1]))
        self._arrived.set()
        return np.concatenate(await asyncio.gather(*futures))

    async def run(self) -> None:
        """Compute what waits until canceled."""
        while True:
            await self._arrived.wait()
            await asyncio.sleep(_WAIT_SECONDS)
            batch, size = [], 0
            while self._waiting and size + len(self._waiting[0][0]) <= MAX_BATCH:
                inputs, future = self._waiting.popleft()
                # A request may have reached its time limit.
                if not future.done():
                    batch.append((inputs, future))
                    size += len(inputs)
            if not self._waiting:
                self._arrived.clear()
            if batch:
                await self._compute(batch, size)

    async def _compute(self, batch: list[tuple[np.ndarray, asyncio.Future]], size: int) -> None:
        self._observe(size)
        joined = np.concatenate([inputs for inputs, _ in batch])
        try:
            outputs = await asyncio.get_running_loop().run_in_executor(self._thread, self._outputs, joined)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        ends = np.cumsum([len(inputs) for inputs, _ in batch])
        for (_, future), part in zip(batch, np.split(outputs, ends[:-1]), strict=True):
            if not future.done():
                future.set_result(part)
