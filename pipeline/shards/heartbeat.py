"""Presence: each worker process registers itself, after its code and packages were compared.

The records' identity names the code and packages of the submitting process. A worker with others ends the job at its
first block.
"""

import json
import os
import socket
import threading
import uuid
from functools import cache

from pipeline.artifacts.fingerprint import code_digests, fingerprint, package_versions
from pipeline.errors import EngineUnavailableError
from pipeline.shards.shared import Shared

#: Packages that can change a byte of the records.
PACKAGES = ("apache-beam", "numpy", "pillow", "protobuf", "tensorflow", "tensorflow-datasets")
#: Entry module of the job's code.
ENTRY = "pipeline.shards.job"
_EXPECTED, _WORKERS = "expected.json", "workers"
_signing_in = threading.Lock()


def expect(shared: Shared) -> None:
    """Write the code and packages of this process, which workers must have."""
    shared.write(_EXPECTED, json.dumps(_own()).encode())


def sign_in(shared: Shared) -> None:
    """Register this process, once per job.

    Raises:
        EngineUnavailableError: it cannot read the shared storage, or has other code or packages.
    """
    # Several threads may begin at the same time.
    with _signing_in:
        _sign_in(shared)


@cache
def _sign_in(shared: Shared) -> None:
    own, where = _own(), f"a worker on {socket.gethostname()} (Beam's, process {os.getpid()})"
    try:
        expected = json.loads(shared.read(_EXPECTED))
    except OSError as error:
        raise EngineUnavailableError(f"{where} cannot read {shared}: {error.strerror}. {shared.remedy}") from error
    differ = [
        f"{name} {own.get(name)} instead of {known}" for name, known in expected.items() if own.get(name) != known
    ]
    if differ:
        raise EngineUnavailableError(
            f"{where} differs from the process that submitted the job: {'; '.join(differ)}. Install the same version "
            "of this project, with the same lock, on all workers, and restart them."
        )
    shared.write(f"{_WORKERS}/{uuid.uuid4().hex}", socket.gethostname().encode())


def signed_in(shared: Shared) -> dict[str, int]:
    """The number of ``hosts`` and ``processes`` that registered, including those that died."""
    hosts = [shared.read(name) for name in shared.names(_WORKERS)]
    return {"hosts": len(set(hosts)), "processes": len(hosts)}


def _own() -> dict[str, str]:
    return {**package_versions(PACKAGES), "code of the project": fingerprint(code_digests(ENTRY))[:12]}
