"""Registration of worker processes, after a check of their code and packages.

The identity of the records contains the code and packages of the submitting process. A worker with other versions ends
the job at its first block.
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
PACKAGES = ("apache-beam", "numpy", "pillow", "pillow-heif", "protobuf", "tensorflow", "tensorflow-datasets")
#: Entry module of the job's code.
ENTRY = "pipeline.shards.job"
_EXPECTED, _WORKERS = "expected.json", "workers"
_signing_in = threading.Lock()


def expect(shared: Shared) -> None:
    """Write the versions of code and packages that workers must have."""
    shared.write(_EXPECTED, json.dumps(_versions()).encode())


def sign_in(shared: Shared) -> None:
    """Register this worker process, once per job. EngineUnavailableError: it has other code, packages or folders."""
    # Several threads may start at the same time.
    with _signing_in:
        _sign_in(shared)


@cache
def _sign_in(shared: Shared) -> None:
    versions, worker = _versions(), f"Beam worker on {socket.gethostname()} (process {os.getpid()})"
    try:
        expected = json.loads(shared.read(_EXPECTED))
    except OSError as error:
        raise EngineUnavailableError(f"{worker} cannot read {shared}: {error.strerror}. {shared.remedy}") from error
    differing = (name for name in expected if versions.get(name) != expected[name])
    if differ := [f"{name} {versions.get(name)} instead of {expected[name]}" for name in differing]:
        raise EngineUnavailableError(
            f"{worker} differs from the process that submitted the job: {', '.join(differ)}. Install the same version "
            "of this project with the same lock on all workers, and restart them."
        )
    shared.write(f"{_WORKERS}/{uuid.uuid4().hex}", socket.gethostname().encode())


def signed_in(shared: Shared) -> dict[str, int]:
    """Number of ``hosts`` and ``processes`` that registered, including those that died."""
    hosts = [shared.read(name) for name in shared.names(_WORKERS)]
    return {"hosts": len(set(hosts)), "processes": len(hosts)}


def _versions() -> dict[str, str]:
    return {**package_versions(PACKAGES), "code of the project": fingerprint(code_digests(ENTRY))[:12]}
