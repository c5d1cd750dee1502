"""Servers on this machine that messages go to: a webhook that may fail first, and a mail server."""

import contextlib
import email
import json
import threading
from collections.abc import Iterator
from email import policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Webhook:
    """Takes JSON at an address that is a secret; answers with the statuses of ``answers`` first, then with 200."""

    secret = "services/T0/B0/c0ffee"

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/{self.secret}"
        self.answers: list[int] = []
        self.asked = 0
        self.taken: list[dict] = []

    def take(self, body: bytes) -> int:
        self.asked += 1
        if self.answers:
            return self.answers.pop(0)
        self.taken.append(json.loads(body))
        return 200


@contextlib.contextmanager
def listening_webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(webhook.take(body))
            self.send_header("Location", webhook.url)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    webhook = Webhook(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield webhook
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


@contextlib.contextmanager
def listening_mail() -> Iterator[tuple[int, list]]:
    """The port of a mail server, and the messages it took."""
    taken = []

    class Handler:
        async def handle_DATA(self, server: object, session: object, envelope: object) -> str:
            taken.append(email.message_from_bytes(envelope.content, policy=policy.default))
            return "250 OK"

    from aiosmtpd.controller import Controller

    controller = Controller(Handler(), hostname="127.0.0.1", port=_free_port())
    controller.start()
    try:
        yield controller.port, taken
    finally:
        controller.stop()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
