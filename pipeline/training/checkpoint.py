"""Checkpoints with the variables of model and optimizer, the state of dropout and the history of the run.

The order of examples depends only on seed and epoch. A resumed run therefore ends with the weights of an uninterrupted
run, bit for bit on the same CPU. Checkpoints of other hardware or of another computation are ignored. Another host
with the same hardware adds a segment to the run.
"""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import load_file, save

from pipeline.artifacts.manifest import check_contents, read_manifest, write_manifest
from pipeline.artifacts.publish import discard, publishing, used_bytes
from pipeline.errors import DamagedArtifactError
from pipeline.models.model import assign
from pipeline.runs.metrics import compiling_epochs

_STATE_NAME = "state.safetensors"
_HISTORY_NAME = "history.json"
_BEST_NAME = "best.safetensors"
_logger = logging.getLogger(__name__)


@dataclass
class History:
    """Finished epochs of a run, including those of earlier processes.

    ``rows`` has the metrics of each epoch, and ``segments`` the epochs of each process as in the record. ``seconds``
    are per phase of the stage until the newest checkpoint. ``best`` has the variables after the best epoch if [Train]
    keep is "best". ``restored`` counts the epochs of earlier processes.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    segments: list[dict] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    best: dict[str, np.ndarray] | None = None
    restored: int = 0

    def compiling(self) -> frozenset[int]:
        """Epochs that included a compilation."""
        return compiling_epochs({"segments": self.segments, "epochs_restored": self.restored})


def save_checkpoint(
    folder: Path, model: keras.Model, history: History, *, fingerprint: str, used: Mapping, belongs_to: Mapping
) -> None:
    """Publish a checkpoint of the last epoch in ``folder`` and remove earlier checkpoints.

    ``used`` is JSON data, the hardware and computation that must be equal to resume. ``belongs_to`` has the experiment
    and the artifacts that retention keeps for this checkpoint.
    """
    epoch = len(history.rows)
    final = folder / f"epoch-{epoch:06d}"
    content = {"rows": history.rows, "segments": history.segments, "seconds": history.seconds}
    with publishing(final) as temporary:
        (temporary / _STATE_NAME).write_bytes(save(copied_values(variables_of(model, optimizer=True))))
        if history.best:
            (temporary / _BEST_NAME).write_bytes(save(history.best))
        (temporary / _HISTORY_NAME).write_text(json.dumps(content), encoding="utf-8")
        identity = {"run": fingerprint, "epoch": epoch, "used": dict(used)}
        write_manifest(temporary, stage="checkpoint", identity=identity, details={"belongs_to": dict(belongs_to)})
    for checkpoint in folder.glob("epoch-*"):
        if checkpoint != final:
            discard(checkpoint)


def bytes_needed(model: keras.Model, folder: Path, *, keep_best: bool) -> int:
    """Peak disk space in bytes beyond the present checkpoints: two checkpoints, or a checkpoint and two models."""
    model_bytes, optimizer_bytes = (
        sum(4 * math.prod(variable.shape) for variable in owner.variables) for owner in (model, model.optimizer)
    )
    checkpoint_bytes = optimizer_bytes + model_bytes * (2 if keep_best else 1)
    return max(0, checkpoint_bytes + max(checkpoint_bytes, 2 * model_bytes) - used_bytes(folder))


def restore_checkpoint(folder: Path, model: keras.Model, *, fingerprint: str, used: Mapping[str, Any]) -> History:
    """Load the newest valid checkpoint of this run into ``model``. Checkpoints with another ``used`` are ignored.

    Return the history of the run, which is empty if no checkpoint is valid.
    """
    for candidate in sorted(folder.glob("epoch-*"), reverse=True):
        try:
            manifest = read_manifest(candidate)
            check_contents(candidate, manifest)
        except DamagedArtifactError as error:
            _logger.warning("Ignoring a damaged checkpoint. %s", error)
            continue
        identity = manifest["identity"]
        if identity.get("run") != fingerprint:
            continue
        saved = identity.get("used") or {}
        differing = {name: saved.get(name) for name, value in used.items() if saved.get(name) != value}
        if differing:
            expected = {name: used[name] for name in differing}
            _logger.warning("Ignoring checkpoint %s, because it used %s, not %s.", candidate.name, differing, expected)
            continue
        state, variables = load_file(candidate / _STATE_NAME), variables_of(model, optimizer=True)
        if state.keys() == variables.keys():
            assign(variables, state)
            history = History(**json.loads((candidate / _HISTORY_NAME).read_text(encoding="utf-8")))
            history.restored = len(history.rows)
            if (candidate / _BEST_NAME).exists():
                history.best = load_file(candidate / _BEST_NAME)
            return history
    return History()


def variables_of(model: keras.Model, *, optimizer: bool = False) -> dict[str, keras.Variable]:
    """Index and path → variable of the model and, on request, of its optimizer."""
    variables = [*model.variables, *(model.optimizer.variables if optimizer else ())]
    # Variables may share a path, for example the seed states of two dropout layers.
    return {f"{index:04d} {variable.path}": variable for index, variable in enumerate(variables)}


def copied_values(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    """Copies of the values. On a CPU, a converted variable may share memory with the next step."""
    return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}
