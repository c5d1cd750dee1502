"""Starts a training in a child process, alone or in a process group across hosts."""

import json
import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.errors import WorkerDiedError, causes
from pipeline.hardware.placement import choose_backend
from pipeline.runs.initial_weights import InitialWeights
from pipeline.runs.record import Origin, RunRecord
from pipeline.settings.training import JAX, TENSORFLOW, TrainSettings
from pipeline.stage_process import in_child, of_class, to_json
from pipeline.training.heartbeat import Heartbeat
from pipeline.training.process_group import ProcessGroup

_TRAIN = "pipeline.training.train:train"
# Collective operations and JAX's service raise these messages if a peer stops. The service then aborts this process.
_LOST_CONNECTION = "Gloo|oordination service|distributed service|onnection closed|onnection reset|heartbeat|UNAVAILABLE"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class FeaturesArtifact:
    """Folder and identity of the artifact with the features of a frozen backbone (fine_tuning.py)."""

    folder: Path
    identity: dict[str, Any]
    experiment: str


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """Arguments of one training.

    Attributes:
        records: Folder of the published records.
        requested_dataset: Dataset that the user requested. A placeholder may replace it.
        checkpoints: Folder of the run's checkpoints. The run resumes from the newest of them.
        started: Value of ``time.perf_counter`` at the start of the stage. All processes of a machine share this clock.
        features: Artifact to read features from, or to write if there is none. None neither reads nor writes.
        chosen: Settings that were ``auto``, with the values that the examples got.
        experiment: Name of the experiment, by default that of the dataset.
        origin: Command and code of the run, for its record.
        seeded_weights: File of the seeded weights, if another backend generated them.
    """

    records: Path
    settings: TrainSettings
    requested_dataset: str
    fingerprint: str
    checkpoints: Path
    started: float | None = None
    initial: InitialWeights | None = None
    features: FeaturesArtifact | None = None
    chosen: Mapping[str, str | int] = field(default_factory=dict)
    experiment: str = ""
    origin: Origin | None = None
    seeded_weights: Path | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)


def train_in_child(request: TrainRequest, folder: Path, heartbeat: Heartbeat | None = None) -> RunRecord:
    """Train in a child process. JAX reserves its devices until a process ends, so it gets a new child per run.

    TensorFlow generates the seeded weights, so a seed has the same weights on both backends. Process 0 of a group
    passes its ``heartbeat``. PipelineError: the training failed, see ``train``. WorkerDiedError: a process stopped.
    """
    job = {"request": request, "folder": folder}
    if choose_backend(request.settings) == TENSORFLOW:
        return in_child(_TRAIN, job, returns=RunRecord, cpu_devices=request.settings.replicas)
    # The next run removes the folder if this one is killed.
    with tempfile.TemporaryDirectory(prefix=".drawn-", dir=folder.parent) as scratch:
        file = Path(scratch) / "drawn.safetensors"
        arguments = {"records_folder": request.records, "settings": request.settings, "file": file}
        in_child("pipeline.training.model:write_seeded_weights", arguments)
        job["request"] = request = replace(request, seeded_weights=file)
        if heartbeat is None:
            return in_child(_TRAIN, job, returns=RunRecord, backend=JAX)
        with heartbeat.requesting(json.loads(to_json(request))):
            return _train_together(job, heartbeat)


def follow(content: Any, group: ProcessGroup, folder: Path, heartbeat: Heartbeat) -> None:
    """Train with process 0 as its request ``content`` specifies. The caller discards ``folder``."""
    request = replace(of_class(TrainRequest, content), group=group)
    _train_together({"request": request, "folder": folder}, heartbeat)


def _train_together(job: dict, heartbeat: Heartbeat) -> RunRecord:
    try:
        return in_child(_TRAIN, job, returns=RunRecord, backend=JAX, is_in_process_group=True)
    except WorkerDiedError as error:
        log_lines = getattr(error, "__notes__", [])
        if "SIGABRT" in str(error) and re.search(_LOST_CONNECTION, " ".join(log_lines)):
            raise heartbeat.explain_lost_connection() from None
        for line in log_lines:
            _logger.info("%s", line)
        raise
    except RuntimeError as error:
        if re.search(_LOST_CONNECTION, " ".join(map(str, causes(error)))):
            raise heartbeat.explain_lost_connection() from None
        raise
