"""TPU VM: which of the machines that share a TPU this is, as Google's metadata server says (hardware's aid).

In GKE the environment says it. On a TPU VM by itself the server has it, in the attributes that JAX's own search for its
cluster reads.
"""

import os
import re
import urllib.request
from collections.abc import Mapping
from functools import cache

from pipeline import machine
from pipeline.config.training import TrainSettings

_WORKER_ID, _WORKER_HOSTNAMES = "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"
_SECONDS, _MOST_BYTES = 5, 2**20
# name:id:address of each worker, or its address alone, as newer ones are told.
_ENDPOINT = re.compile(r"(?:[^:,]*:[^:,]*:)?([\w.-]+)")


def environment(settings: TrainSettings) -> Mapping[str, str]:
    """``os.environ``, with TPU_WORKER_ID and TPU_WORKER_HOSTNAMES where only the metadata server says them.

    It is asked where several processes train on a machine with TPU chips, unless TPU_SKIP_MDS_QUERY says not to.
    """
    given = os.environ
    known = given.get(_WORKER_ID) or given.get("SLURM_PROCID") or given.get("JOB_COMPLETION_INDEX")
    if settings.processes == 1 or known or given.get("TPU_SKIP_MDS_QUERY") or not machine.tpu_chips():
        return given
    number, endpoints = _attribute("agent-worker-number"), _attribute("worker-network-endpoints")
    hosts = [_ENDPOINT.fullmatch(one.strip()) for one in endpoints.split(",")]
    if not number.strip().isdigit() or None in hosts:
        return given
    return {**given, _WORKER_ID: number.strip(), _WORKER_HOSTNAMES: ",".join(host[1] for host in hosts)}


@cache
def _attribute(name: str) -> str:
    """An attribute of this machine; "" where no server tells it."""
    server = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    url = f"http://{server}/computeMetadata/v1/instance/attributes/{name}"
    request = urllib.request.Request(url, headers={"Metadata-Flavor": "Google"})
    # It is on this machine's own network: past any proxy.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            return answer.read(_MOST_BYTES).decode()
    except (OSError, ValueError):
        return ""
