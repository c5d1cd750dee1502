"""Rank of this machine among the hosts of a TPU, from Google's metadata server.

GKE sets the rank in the environment. Other TPU VMs have it in the attributes that JAX's cluster detection reads.
"""

import os
import re
import urllib.request
from collections.abc import Mapping
from functools import cache

from pipeline import machine
from pipeline.settings.training import TrainSettings

_TIMEOUT_SECONDS, _MAX_BYTES = 5, 2**20
# An endpoint is name:id:address, or only the address on newer TPU VMs.
_ENDPOINT = re.compile(r"(?:[^:,]*:[^:,]*:)?([\w.-]+)")


def environment(settings: TrainSettings) -> Mapping[str, str]:
    """``os.environ``, with missing values of TPU_WORKER_ID and TPU_WORKER_HOSTNAMES from the metadata server.

    Only several processes on a machine with TPU chips need the server. TPU_SKIP_MDS_QUERY disables the request.
    """
    current = os.environ
    rank = current.get("TPU_WORKER_ID") or current.get("SLURM_PROCID") or current.get("JOB_COMPLETION_INDEX")
    if settings.processes == 1 or rank or current.get("TPU_SKIP_MDS_QUERY") or not machine.tpu_chips():
        return current
    number, endpoints = _attribute("agent-worker-number"), _attribute("worker-network-endpoints")
    hosts = [_ENDPOINT.fullmatch(endpoint.strip()) for endpoint in endpoints.split(",")]
    if not number.strip().isdigit() or None in hosts:
        return current
    return {**current, "TPU_WORKER_ID": number.strip(), "TPU_WORKER_HOSTNAMES": ",".join(host[1] for host in hosts)}


@cache
def _attribute(name: str) -> str:
    """Attribute of this machine. Empty if no server responds."""
    server = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    url = f"http://{server}/computeMetadata/v1/instance/attributes/{name}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    # The server is on the local network, so no proxy applies.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
            return response.read(_MAX_BYTES).decode()
    except (OSError, ValueError):
        return ""
