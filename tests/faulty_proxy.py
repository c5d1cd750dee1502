"""A proxy before an object store that does to its requests what networks do."""

import contextlib
import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

#: What becomes of a request: "pass"; "cut" before it arrives; "unanswered" once it has; "half" an answer; a status;
#: or the bytes that are its answer.
Decision = str | int | bytes


class _Server(ThreadingHTTPServer):
    """A server that lets as many clients wait as an object store does."""

    request_queue_size = 128
    daemon_threads = True


class FaultyProxy:
    """Passes requests on, but for those that ``decide`` says otherwise of: (number from 0, method, path) → Decision."""

    def __init__(self, endpoint: str, decide: Callable[[int, str, str], Decision] = lambda *_: "pass") -> None:
        self.decide, self.requests = decide, []
        self._lock, target = threading.Lock(), urlsplit(endpoint)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with proxy._lock:
                    number = len(proxy.requests)
                    proxy.requests.append((self.command, self.path, len(content)))
                decision = proxy.decide(number, self.command, self.path)
                # A connection is used again after an answer that the proxy itself draws up.
                self.close_connection = not isinstance(decision, bytes)
                if decision == "cut":
                    return
                if isinstance(decision, bytes):
                    self.send_response(200)
                    self.send_header("Content-Type", "application/xml")
                    self.send_header("Content-Length", str(len(decision)))
                    self.end_headers()
                    self.wfile.write(decision)
                    return
                if isinstance(decision, int):
                    self.send_response(decision)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                onward = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
                onward.request(self.command, self.path, content, dict(self.headers))
                answer = onward.getresponse()
                body = answer.read()
                if decision == "unanswered":
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                # Of HEAD that of what would be sent.
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                # Who asked may have been killed meanwhile.
                with contextlib.suppress(ConnectionError):
                    self.wfile.write(body[: len(body) // 2] if decision == "half" else body)

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Nobody listens there any more."""
        self._server.shutdown()
        self._server.server_close()
