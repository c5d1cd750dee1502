"""Sends an OpenLineage event when a stage starts, is complete or fails, if the client of OpenLineage is configured."""

import logging
import os
import re
import socket
import threading
import uuid
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import luigi

from pipeline.errors import without_userinfo
from pipeline.optional_packages import DISTRIBUTION, install_command, installed_version
from tasks.data import Source
from tasks.process.console import RUN_ID
from tasks.stage import Stage

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

_VARIABLE = re.compile("OPENLINEAGE_(URL|CONFIG|_TRANSPORT)")
# The client tries for half a minute per event.
_SECONDS = 3
_has_failed = cache(threading.Event)

_logger = logging.getLogger(__name__)


@cache
def _client() -> "OpenLineageClient | None":
    """The client, None if it is not configured."""
    files = (Path("openlineage.yml"), Path("~/.openlineage/openlineage.yml").expanduser())
    # Without any of these, the client would print events.
    if not any(map(_VARIABLE.match, os.environ)) and not any(file.is_file() for file in files):
        return None
    # It logs each attempt.
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


def _send(state: str, stage: Stage, error: BaseException | None = None) -> None:
    """Send an event, unless one has failed, and wait a few seconds at most. No error ends the run."""
    problems = ["The receiver did not respond."]

    def emit() -> None:
        try:
            client.emit(_event(state, stage, error))
            problems.clear()
        except Exception as failure:
            problems.append(_described(failure))

    try:
        if _has_failed().is_set() or not (client := _client()):
            return
        thread = threading.Thread(target=emit, daemon=True)
        thread.start()
        thread.join(_SECONDS)
    except ModuleNotFoundError as missing:
        problems.append(f"The package {missing.name} is not installed. Install it with: {install_command('lineage')}")
    # Of its settings, such as an invalid address.
    except Exception as failure:
        problems.append(_described(failure))
    if problems:
        _has_failed().set()
        _logger.warning("This run sends no more events to OpenLineage. %s", problems[-1])


def _described(error: BaseException) -> str:
    return without_userinfo(f"{type(error).__name__}: {error}")


def _event(state: str, stage: Stage, error: BaseException | None) -> "RunEvent":
    from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import error_message_run

    facets, host = {}, f"file://{socket.gethostname()}"
    namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "tensorcraft")
    if error is not None:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(_described(error), "Python")
    if isinstance(stage, Source):
        path = stage.settings.path
        inputs = [(host, str(Path(path).expanduser().absolute())) if path else ("dataset", stage.requested())]
    else:
        inputs = [(host, str(task.output().folder)) for task in stage.inputs]
    return RunEvent(
        eventType=RunState[state],
        eventTime=datetime.now(UTC).isoformat(),
        run=Run(str(uuid.uuid5(uuid.UUID(RUN_ID), stage.task_id)), facets),
        job=Job(namespace, f"{stage.experiment_name()}.{stage.task_family}"),
        inputs=[InputDataset(*names) for names in inputs],
        outputs=[OutputDataset(host, str(stage.output().folder))],
        producer=f"pkg:pypi/{DISTRIBUTION}@{installed_version(DISTRIBUTION)}",
    )


for _name, _state in {"START": "START", "SUCCESS": "COMPLETE", "FAILURE": "FAIL"}.items():
    Stage.event_handler(getattr(luigi.Event, _name))(lambda *about, state=_state: _send(state, *about))
