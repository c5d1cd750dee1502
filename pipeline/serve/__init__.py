"""Server of a trained model for HTTP, by FastAPI and ONNX Runtime."""

import re
from dataclasses import dataclass

from pipeline.predict import Job

#: Names by which a server for this machine alone is always called.
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
    save_counts_seconds: float = 60

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches the server."""
        return re.fullmatch(r"localhost|::1|127(\.\d+){3}", self.host) is not None

    @property
    def address(self) -> str:
        """Host and port as in an URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
