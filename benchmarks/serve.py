"""Load of a server: python -m benchmarks.serve http://127.0.0.1:8000 IMAGE, while tensorcraft serve runs.

It prints latencies in milliseconds, and the memory of the server after the warm-up and at the end in MB, as JSON.
"""

import http.client
import json
import re
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

SECONDS, CONNECTIONS, WARM_UP_SECONDS = 30, 32, 5


def load(address: str, body: bytes, seconds: float) -> tuple[list[float], list[str]]:
    """Send a body over all connections. Return the seconds of each answer, and errors."""
    times, errors, end = [], [], time.monotonic() + seconds

    def send() -> None:
        connection = http.client.HTTPConnection(address, timeout=60)
        while (start := time.monotonic()) < end:
            try:
                connection.request("POST", "/predict", body)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != 200:
                    errors.append(f"{answer.status} {content[:200]}")
            except OSError as error:
                errors.append(repr(error))
                connection.close()
            times.append(time.monotonic() - start)

    threads = [threading.Thread(target=send) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, errors


def metric(address: str, name: str) -> float:
    """Return a metric of the server."""
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/metrics")
    return float(re.search(rf"^{name} (\S+)$", connection.getresponse().read().decode(), re.MULTILINE)[1])


def main(url: str, image: str) -> None:
    """Load the server at an address with an image."""
    address, body = urlsplit(url).netloc, Path(image).read_bytes()
    load(address, body, WARM_UP_SECONDS)
    names = ("process_resident_memory_bytes", "tensorcraft_batch_examples_sum", "tensorcraft_batch_examples_count")
    before = [metric(address, name) for name in names]
    times, errors = load(address, body, SECONDS)
    after = [metric(address, name) for name in names]
    result = {
        "connections": CONNECTIONS,
        "requests": len(times),
        "errors": len(errors),
        "first_errors": errors[:3],
        "requests_per_second": round(len(times) / SECONDS, 1),
        **{f"p{share}_ms": round(1000 * float(np.percentile(times, share)), 1) for share in (50, 99, 100)},
        "mean_batch": round((after[1] - before[1]) / (after[2] - before[2]), 2),
        "memory_before_mb": round(before[0] / 1e6, 1),
        "memory_after_mb": round(after[0] / 1e6, 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
