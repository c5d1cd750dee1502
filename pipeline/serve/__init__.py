"""Server of a trained model for HTTP, by FastAPI and ONNX Runtime."""

from dataclasses import dataclass

from pipeline.predict import Job

#: Names of this machine alone.
LOOPBACK = ("127.0.0.1", "localhost")


@dataclass(frozen=True)
class Service:
    """The run that answers, the address and the limits. ``concurrency`` counts requests in work and waiting ones."""

    job: Job
    host: str = LOOPBACK[0]
    port: int = 0
    max_body_bytes: int = 20_000_000
    timeout_seconds: float = 30
    concurrency: int = 64
