"""The command ``serve``, which answers requests with a trained model."""

import argparse
import contextlib
import logging
from functools import partial
from importlib.util import find_spec

from pipeline.errors import SettingsError
from pipeline.optional_packages import install_command
from pipeline.serve import LOOPBACK, Service
from pipeline.stage_process import in_child
from tasks.commands.command import A_RUN, DEFAULT_RUN, argument, command, not_empty
from tasks.commands.predict import job_of
from tasks.process import interrupt
from tasks.stage import Stage

_logger = logging.getLogger(__name__)


def number(text: str, kind: type = float, least: str = "0.000001", name: str = "a number") -> float:
    """The type of a limit. The smallest size is a byte."""
    with contextlib.suppress(ValueError):
        if float(least) <= (value := kind(text)) <= 1e6:
            return value
    raise argparse.ArgumentTypeError(f"expected {name} from {least} to 1000000, got {text}")


integer = partial(number, kind=int, least="1", name="an integer")


@command(
    argument("run", nargs="?", type=not_empty, metavar="RUN", help=f"{A_RUN} ({DEFAULT_RUN})"),
    argument("--host", default=LOOPBACK[0], type=not_empty, help=f"address to listen on, by default {LOOPBACK[0]}"),
    argument("--port", type=int, default=8000, help="port to listen on, by default 8000. 0 selects a free port"),
    argument("--max-body", type=number, default=20, metavar="MB", help="size of a request, by default 20"),
    argument("--timeout", type=number, default=30, metavar="SECONDS", help="time of a request, by default 30"),
    argument("--concurrency", type=integer, default=64, metavar="N", help="requests at once, by default 64"),
)
def serve(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Serve a trained model, by default on this machine only."""
    needed = ("fastapi", "onnx", "onnxruntime", "python_multipart", "tf2onnx", "uvicorn")
    if missing := [name for name in needed if not find_spec(name)]:
        raise SettingsError(
            f"serve: the package {missing[0]} is not installed. Install it with: {install_command('serve')}"
        )
    job, manifest = job_of("RUN", arguments.run)
    service = Service(
        job=job,
        host=arguments.host,
        port=arguments.port,
        max_body_bytes=int(arguments.max_body * 1e6),
        timeout_seconds=arguments.timeout,
        concurrency=arguments.concurrency,
    )
    if not service.is_local:
        _logger.warning("Other machines can reach the server, which has no authentication and no encryption.")
    interrupt.listen()
    with contextlib.suppress(KeyboardInterrupt):
        in_child("pipeline.serve.server:serve", {"service": service, "manifest": manifest})
    return 0
