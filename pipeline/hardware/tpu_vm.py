"""The rank of this machine among those that share a TPU, from Google's metadata server.

GKE sets it in the environment. On other TPU VMs it is in the attributes that JAX's cluster detection reads.
"""

import os
import re
import urllib.request
from collections.abc import Mapping
from functools import cache

from pipeline import machine
from pipeline.settings.training import TrainSettings

_TIMEOUT_SECONDS, _MOST_BYTES = 5, 2**20
# name:id:address of each worker, or the address alone on newer ones.
_ENDPOINT = re.compile(r"(?:[^:,]*:[^:,]*:)?([\w.-]+)")


def environment(settings: TrainSettings) -> Mapping[str, str]:
    """``os.environ``, with TPU_WORKER_ID and TPU_WORKER_HOSTNAMES from the metadata server if they are missing.

    The request is made for several processes on a machine with TPU chips, unless TPU_SKIP_MDS_QUERY is set.
    """
    given = os.environ
    known = given.get("TPU_WORKER_ID") or given.get("SLURM_PROCID") or given.get("JOB_COMPLETION_INDEX")
    if settings.processes == 1 or known or given.get("TPU_SKIP_MDS_QUERY") or not machine.tpu_chips():
        return given
    number, endpoints = _attribute("agent-worker-number"), _attribute("worker-network-endpoints")
    hosts = [_ENDPOINT.fullmatch(one.strip()) for one in endpoints.split(",")]
    if not number.strip().isdigit() or None in hosts:
        return given
    return {**given, "TPU_WORKER_ID": number.strip(), "TPU_WORKER_HOSTNAMES": ",".join(host[1] for host in hosts)}


@cache
def _attribute(name: str) -> str:
    """An attribute of this machine, or an empty string if no server answers."""
    server = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    url = f"http://{server}/computeMetadata/v1/instance/attributes/{name}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    # Without a proxy, because the server is on the local network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return answer.read(_MOST_BYTES).decode()
    except (OSError, ValueError):
        return ""
