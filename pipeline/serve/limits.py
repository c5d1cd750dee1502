"""Limits of requests, and the metrics of the server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fastapi import Request
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from pipeline.serve import Service


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
        left = self._max_bytes
        if int(self.headers.get("content-length", "0")) > left:
            raise self._refusal()
        async for part in super().stream():
            left -= len(part)
            if left < 0:
                raise self._refusal()
            yield part

    def _refusal(self) -> HTTPException:
        return HTTPException(413, f"body: expected at most {self._max_bytes:,} bytes, got more.")
