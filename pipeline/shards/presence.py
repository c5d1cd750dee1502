"""Presence: each worker process says who it is, beside the blocks it writes (the shards' aid).

The records' identity names the code and the packages that they were made with, as the submitting process has them. On a
cluster others make them: a worker with other code or another version ends the job at its first block, instead of
leaving records that are not what they say. One that does not see the storage root says so, not which file is missing.
"""

import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import cache

from pipeline.artefacts.fingerprint import code_digests, fingerprint, package_versions
from pipeline.errors import EngineUnavailableError
from pipeline.shards import worker_logs
from pipeline.shards.shared import Shared

#: What of the installed packages can change a byte of the records.
PACKAGES = ("apache-beam", "numpy", "pillow", "protobuf", "tensorflow", "tensorflow-datasets")
#: Of the job's code.
ENTRY = "pipeline.shards.job"
_EXPECTED, _WORKERS = "expected.json", "workers"
# Two containers may have the same name and process number; a forked process has another number.
_PROCESS = uuid.uuid4().hex
_signing_in = threading.Lock()

_logger = logging.getLogger(__name__)


def expect(shared: Shared) -> None:
    """Leave what workers are to have, which is what this process has."""
    shared.write(_EXPECTED, json.dumps({**_own(), "submitted_by": _this_process()}).encode())


def sign_in(shared: Shared) -> None:
    """Note this process; once, however many blocks it writes. What it logs from now on is told where the job began.

    Raises:
        EngineUnavailableError: nothing was left there, or by a process with other code or packages.
    """
    # Several threads may begin at once.
    with _signing_in:
        _sign_in(shared)


@cache
def _sign_in(shared: Shared) -> None:
    own, where = _own(), f"a worker on {socket.gethostname()} (Beam's, process {os.getpid()})"
    try:
        expected = json.loads(shared.read(_EXPECTED))
    except OSError as error:
        raise EngineUnavailableError(f"{where} cannot read {shared}: {error.strerror}. {shared.remedy}") from error
    if differ := _differences(expected, own):
        raise EngineUnavailableError(
            f"{where} differs from the process that submitted the job: {'; '.join(differ)}. Install the same version "
            "of this project, with the same lock, on all workers, and restart them."
        )
    # Beam's own runner works in threads of the process that submits the job, whose log it is.
    if expected.get("submitted_by") != _this_process():
        worker_logs.send(shared, _EXPECTED)
        _logger.info("takes part")
    shared.write(f"{_WORKERS}/{uuid.uuid4().hex}.json", json.dumps({"host": socket.gethostname(), **own}).encode())


def signed_in(shared: Shared) -> dict[str, int]:
    """``hosts`` and ``processes``: how many of them wrote blocks, those that died included."""
    notes = [json.loads(shared.read(name)) for name in shared.names(f"{_WORKERS}/")]
    return {"hosts": len({note["host"] for note in notes}), "processes": len(notes)}


def _this_process() -> list:
    return [_PROCESS, os.getpid()]


def _own() -> dict:
    return {"packages": package_versions(PACKAGES), "code": fingerprint(code_digests(ENTRY))}


def _differences(expected: Mapping, found: Mapping) -> Sequence[str]:
    packages = [
        f"{name} {found['packages'].get(name)} instead of {version}"
        for name, version in expected["packages"].items()
        if found["packages"].get(name) != version
    ]
    return [*packages, *(["other code of the project"] if expected["code"] != found["code"] else [])]
