"""A store, and artifacts to share through it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from faulty_proxy import FaultyProxy
from moto_server import ENVIRONMENT, Store

from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.manifest import write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.remote.artifacts import Remote
from pipeline.remote.objects import Objects

FILES = {"a.bin": b"a" * 1_000, "deep/b.bin": b"b" * 300_000, "deep/again.bin": b"a" * 1_000, "empty": b""}


@pytest.fixture(scope="session")
def store() -> Iterator[Store]:
    """A server for all tests; each has a bucket of its own."""
    server = Store()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def url(store) -> str:
    """A new bucket's address."""
    return store.bucket()


@pytest.fixture
def remote(store, url) -> Remote:
    """The remote there."""
    return Remote(Objects(url, endpoint=store.endpoint))


@pytest.fixture
def overwrite(remote, tmp_path) -> Callable[[str, bytes], None]:
    """A function that gives an object another content, as anyone with the credentials can."""

    def write(key: str, content: bytes) -> None:
        file = tmp_path / "content"
        file.write_bytes(content)
        remote.objects.put(key, file)

    return write


@pytest.fixture
def behind_proxy(store, url) -> Iterator[Callable[..., tuple[Remote, FaultyProxy]]]:
    """A function that puts a proxy before the same bucket: the remote as it is seen through it, and the proxy."""
    proxies = []

    def put(decide) -> tuple[Remote, FaultyProxy]:
        proxies.append(FaultyProxy(store.endpoint, decide))
        return Remote(Objects(url, endpoint=proxies[-1].endpoint)), proxies[-1]

    yield put
    for proxy in proxies:
        proxy.stop()


@pytest.fixture
def make_artifact(tmp_path) -> Callable[..., Path]:
    """A function that publishes an artifact and gives its folder."""

    def make(name: str = "made", files=FILES, *, identity=None, **details: object) -> Path:
        folder = tmp_path / name
        with publishing(folder) as temporary:
            for file, content in files.items():
                (temporary / file).parent.mkdir(parents=True, exist_ok=True)
                (temporary / file).write_bytes(content)
            write_manifest(temporary, stage="Train", identity=identity or {"settings": {"seed": 1}}, details=details)
        return folder

    return make


@pytest.fixture
def expected() -> str:
    """The fingerprint of those artifacts."""
    return fingerprint({"settings": {"seed": 1}})
