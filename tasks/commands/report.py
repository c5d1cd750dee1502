"""The command ``report``, which opens the newest report or serves it on loopback."""

import argparse
import contextlib
import http.server
import os
import webbrowser
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

from pipeline.artifacts import layout
from pipeline.errors import SettingsError
from tasks.commands.command import argument, command
from tasks.process import interrupt
from tasks.settings import report_page, root_folder
from tasks.stage import Stage

_HOST = "127.0.0.1"
_PAGE = f"/{layout.REPORT}/{layout.REPORT_PAGE}"


@command(
    argument("--open", action="store_true", help="open the page in a browser"),
    argument("--serve", action="store_true", help="serve the page on this machine only, and reload it when it changes"),
    argument("--port", type=int, default=8765, help="port of --serve. 0 selects a free port (default: 8765)"),
)
def report(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Show the path of the newest report, open it or serve it. Nothing is trained."""
    page = report_page()
    if not page.is_file():
        raise SettingsError(f'{page}: expected a report, found none. Run "tensorcraft run" to make one.')
    if not arguments.serve:
        print(f"Report: {page}", flush=True)
        if arguments.open and not webbrowser.open(page.as_uri()):
            print("No browser was found. Open the path above in a browser, or run: tensorcraft report --serve")
        return 0
    try:
        server = http.server.ThreadingHTTPServer((_HOST, arguments.port), partial(Handler, directory=root_folder()))
    except (OSError, OverflowError) as error:
        raise SettingsError(f"--port: cannot listen on {arguments.port} ({error}). Pass another port.") from None
    address = f"http://{_HOST}:{server.server_port}{_PAGE}"
    print(f"Report: {address}\nPress Ctrl-C to stop.", flush=True)
    if arguments.open:
        webbrowser.open(address)
    interrupt.listen()
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the reports and runs of the storage root ``directory`` to browsers of this machine.

    The script of the page reloads it when it changes (report.js).
    """

    # Browsers would download these types instead of showing them.
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | dict.fromkeys(
        (".csv", ".jsonl", ".log", ".md"), "text/plain; charset=utf-8"
    )

    def send_head(self) -> BinaryIO | None:
        """Send the headers of a file of a report or a run. Return its contents, or None after an error."""
        # Another site may have changed the address of its name to this machine.
        if self.headers["Host"] not in {f"{name}:{self.server.server_port}" for name in (_HOST, "localhost")}:
            return self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        url = urlsplit(self.path).path
        if url == "/":
            self.send_response(HTTPStatus.FOUND)
            self.send_header("Location", _PAGE)
            return self.end_headers()
        folders = [(Path(self.directory) / kind).resolve() for kind in (layout.REPORT, layout.RUNS)]
        try:
            path = Path(self.translate_path(self.path)).resolve()
        # A null byte, and before Python 3.13 links in a circle.
        except (ValueError, RuntimeError):
            return self.send_error(HTTPStatus.NOT_FOUND)
        names = [path.relative_to(folder).parts for folder in folders if path.is_relative_to(folder)]
        # Hidden folders have unfinished work.
        if not names or any(name.startswith(".") for name in names[0]):
            return self.send_error(HTTPStatus.NOT_FOUND)
        # The inherited method would follow a link named index.html.
        is_folder = url.endswith("/") and os.path.isdir(path)
        return self.list_directory(path) if is_folder else super().send_head()

    def end_headers(self) -> None:
        """Add headers that keep the scripts of all files but the page from running."""
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-cache")
        # A request that cannot be read has no path.
        if urlsplit(getattr(self, "path", "")).path != _PAGE:
            self.send_header("Content-Security-Policy", "sandbox")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""
