"""An object store for tests: moto, which enforces If-None-Match and If-Match, on this machine alone."""

import logging
import urllib.request
import uuid
from pathlib import Path

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "AKIATESTTESTTEST",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_REGION": "us-east-1",
}
# No proxy of the environment's stands between.
ENVIRONMENT = {**CREDENTIALS, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


class Store:
    """A server with one bucket for each who asks."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        # A line a request.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"

    def bucket(self) -> str:
        """The address of a new, empty bucket."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.request("PUT", name)
        return f"s3://{name}/team"

    def request(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Ask the server itself; it checks no signature."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        asked = urllib.request.Request(f"{self.endpoint}/{path}", data=content, method=method)
        with opener.open(asked) as answer:
            return answer.read()

    def settings(self, url: str, **more: object) -> str:
        """Lines of [Storage] for a bucket."""
        lines = {"remote": url, "remote_endpoint": self.endpoint, **more}
        return "\n".join(f"{name} = {value}" for name, value in lines.items())

    def stop(self) -> None:
        """No request is answered any more."""
        self._server.stop()


def files_of(folder: Path) -> dict[str, bytes]:
    """Name → content of an artifact's files, what is noted beside them left out."""
    names = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if name not in ("fetched.json", "verified.json")}
