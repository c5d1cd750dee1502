"""Remote: records of CIFAR-10 to an S3 server on this machine and from there, against the cloud's client (14a, 14b)."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.comparison import Comparison, interleaved, seconds_of, speedup
from benchmarks.data import Bench
from pipeline.artifacts.manifest import read_manifest
from pipeline.remote.artifacts import Remote
from pipeline.remote.objects import Objects

_KIND = "records"
_AT_A_TIME = 8
_SERVER = """
import logging, sys, time
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def measure(bench: Bench) -> list[Comparison]:
    """Row 14."""
    try:
        import boto3
        import moto  # noqa: F401
    except ModuleNotFoundError as error:
        sys.exit(f"benchmarks: {error.name} is not installed. It is with make setup-dev.")
    credentials = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_REGION": "us-east-1"}
    os.environ.update({**credentials, "AWS_DEFAULT_REGION": "us-east-1", "NO_PROXY": "127.0.0.1"})
    manifest = read_manifest(bench.records_folder)
    names = [entry["name"] for entry in manifest["files"]]
    with _server() as endpoint, tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
        client = boto3.client("s3", endpoint_url=endpoint)
        buckets: dict[str, str] = {}

        def new_bucket(whose: str) -> str:
            buckets[whose] = f"bench-{uuid.uuid4().hex[:12]}"
            client.create_bucket(Bucket=buckets[whose])
            return buckets[whose]

        def remote() -> Remote:
            return Remote(Objects(f"s3://{buckets['ours']}/team", endpoint=endpoint))

        def push() -> float:
            new_bucket("ours")
            return seconds_of(lambda: remote().push(_KIND, bench.records_folder))

        def upload() -> float:
            bucket = new_bucket("theirs")
            return _all(names, lambda name: client.upload_file(str(bench.records_folder / name), bucket, name))

        def fetch() -> float:
            root = Path(scratch) / "ours"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            held = remote().find(_KIND, manifest["fingerprint"])
            return seconds_of(lambda: remote().fetch(_KIND, held, root / "records", root=root))

        def download() -> float:
            folder = Path(scratch) / "theirs"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            return _all(names, lambda name: client.download_file(buckets["theirs"], name, str(folder / name)))

        values = interleaved({"push": push, "upload": upload, "fetch": fetch, "download": download}, bench.rounds)
    size = f"{sum(entry['bytes'] for entry in manifest['files']) / 1e6:.0f} MB in {len(names)} files"
    against = f"boto3, {_AT_A_TIME} files at a time, which checks no digest"
    return [
        speedup(
            *(number, against, values[theirs], 1),
            what=f"{what}, {size}",
            unit="s",
            ours=values[ours],
            limit="the server is Python's and answers on the same cores: the client's share is smaller than it looks",
        )
        for number, what, ours, theirs in (
            ("14a", "records pushed", "push", "upload"),
            ("14b", "records fetched", "fetch", "download"),
        )
    ]


def _all(names, work) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        list(pool.map(work, names))
    return time.perf_counter() - started


@contextmanager
def _server() -> Iterator[str]:
    command = [sys.executable, "-c", _SERVER]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        line = next(line for line in process.stdout if line.strip().isdigit())
        yield f"http://127.0.0.1:{line.strip()}"
    finally:
        process.kill()
        process.wait()
