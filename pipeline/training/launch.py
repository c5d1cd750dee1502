"""The request to train, and its child process, alone or together with the processes of other hosts."""

import json
import logging
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.errors import WorkerDiedError, causes
from pipeline.hardware.backend import choose_backend
from pipeline.runs.initial_weights import InitialWeights
from pipeline.runs.record import RunRecord
from pipeline.settings.training import JAX, TENSORFLOW, TrainSettings
from pipeline.stage_process import in_child, of_class, to_json
from pipeline.training.heartbeat import Heartbeat
from pipeline.training.process_group import ProcessGroup

_TRAIN = "pipeline.training.train:train"
# Messages of a collective operation and of JAX's service if another process is gone. The service aborts this one.
_LOST_CONNECTION = (
    *("Gloo", "oordination service", "distributed service", "onnection closed", "onnection reset", "heartbeat"),
    "UNAVAILABLE",
)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """One run to train.

    Attributes:
        records: the folder of the published records.
        requested_dataset: the dataset that the user asked for. A placeholder may replace it.
        checkpoints: the folder of the run's checkpoints. The run resumes from a checkpoint there.
        started: the value of ``time.perf_counter`` when the stage began. All processes of a machine share this clock.
        experiment: by default it has the name of the dataset.
        drawn: the file of the seeded weights, if another backend drew them.
    """

    records: Path
    settings: TrainSettings
    requested_dataset: str
    fingerprint: str
    checkpoints: Path
    started: float | None = None
    initial: InitialWeights | None = None
    experiment: str = ""
    drawn: Path | None = None
    group: ProcessGroup = field(default_factory=ProcessGroup)


def train_in_child(request: TrainRequest, folder: Path, heartbeat: Heartbeat | None = None) -> RunRecord:
    """Train in the child process; on JAX in one of its own, because JAX keeps its devices for the life of a process.

    TensorFlow draws the seeded weights, so that the same seed begins with the same weights on either backend.
    ``presence`` is that of this process, if it is process 0 of several.

    Raises:
        PipelineError: what ``train`` raises.
        WorkerDiedError: a process is gone. The message names it.
    """
    job = {"request": request, "folder": folder}
    if choose_backend(request.settings) == TENSORFLOW:
        return in_child(_TRAIN, job, returns=RunRecord, cpu_devices=request.settings.replicas)
    # The next run removes the folder if this one is killed.
    with tempfile.TemporaryDirectory(prefix=".drawn-", dir=folder.parent) as scratch:
        drawn = Path(scratch) / "drawn.safetensors"
        how = {"records_folder": request.records, "settings": request.settings, "file": drawn}
        in_child("pipeline.training.model:draw_weights", how)
        job["request"] = request = replace(request, drawn=drawn)
        if heartbeat is None:
            return in_child(_TRAIN, job, returns=RunRecord, backend=JAX)
        with heartbeat.requesting(json.loads(to_json(_moved(request, heartbeat.root, Path())))):
            return _train_together(job, heartbeat)


def follow(content: Any, group: ProcessGroup, folder: Path, heartbeat: Heartbeat) -> None:
    """Train with process 0, as its request asks, into a folder that nobody keeps."""
    request = replace(_moved(of_class(TrainRequest, content), Path(), heartbeat.root), group=group)
    _train_together({"request": request, "folder": folder}, heartbeat)


def _moved(request: TrainRequest, root: Path, other: Path) -> TrainRequest:
    """The request with paths under another root: each host may mount the storage root at another place."""

    def move(path: Path) -> Path:
        return other / path.relative_to(root) if path.is_relative_to(root) else path

    initial = request.initial and replace(request.initial, file=move(request.initial.file))
    paths = {name: move(getattr(request, name)) for name in ("records", "checkpoints", "drawn")}
    return replace(request, initial=initial, **paths)


def _train_together(job: dict, heartbeat: Heartbeat) -> RunRecord:
    try:
        return in_child(_TRAIN, job, returns=RunRecord, backend=JAX, is_in_process_group=True)
    except WorkerDiedError as error:
        last_lines = getattr(error, "__notes__", [])
        if "SIGABRT" in str(error) and _is_lost_connection(last_lines):
            raise heartbeat.explain(error) from None
        for line in last_lines:
            _logger.info("%s", line)
        raise
    except RuntimeError as error:
        if _is_lost_connection(map(str, causes(error))):
            raise heartbeat.explain(error) from None
        raise


def _is_lost_connection(texts: Iterable[str]) -> bool:
    return any(part in text for text in texts for part in _LOST_CONNECTION)
