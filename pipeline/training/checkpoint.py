"""Checkpoints after each epoch: the variables of model and optimizer, the state of dropout, and the run's history.

The order of examples depends on seed and epoch alone. A resumed run ends with the weights of an uninterrupted one, bit
for bit on the same CPU. A checkpoint of other hardware, or of another computation, is refused. Another host with the
same hardware adds a segment to the run.
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
from pipeline.errors import DamagedArtifactError, message
from pipeline.models.model import assign
from pipeline.runs.metrics import compiling_epochs

_STATE_NAME = "state.safetensors"
_HISTORY_NAME = "history.json"
_BEST_NAME = "best.safetensors"
_logger = logging.getLogger(__name__)


@dataclass
class History:
    """The finished epochs of a run, by all processes that trained it, as plain data.

    ``rows`` are the metrics of its epochs, ``segments`` the epochs of each process as in the record, ``seconds`` those
    of each part of the stage up to the newest checkpoint, ``best`` the model's variables after the best epoch, if it is
    to be kept, and ``restored`` the number of epochs that earlier processes trained.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    segments: list[dict] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    best: dict[str, np.ndarray] | None = None
    restored: int = 0

    def compiling(self) -> frozenset[int]:
        """The epochs that compiled."""
        return compiling_epochs({"segments": self.segments, "epochs_restored": self.restored})


def save_checkpoint(
    folder: Path,
    model: keras.Model,
    history: History,
    *,
    fingerprint: str,
    used: Mapping[str, Any],
    belongs_to: Mapping[str, Any],
) -> None:
    """Publish the state after the last epoch of ``history`` in ``folder``, then remove the one before it.

    ``used``, plain JSON data, is the hardware and computation that a process must share to resume. ``belongs_to`` is
    for the clean-up: the experiment, and artifacts that the checkpoint needs.
    """
    epoch = len(history.rows)
    final = folder / f"epoch-{epoch:06d}"
    about = {"rows": history.rows, "segments": history.segments, "seconds": history.seconds}
    with publishing(final) as temporary:
        (temporary / _STATE_NAME).write_bytes(save(copied(variables_of(model, optimizer=True))))
        if history.best:
            (temporary / _BEST_NAME).write_bytes(save(history.best))
        (temporary / _HISTORY_NAME).write_text(json.dumps(about), encoding="utf-8")
        identity = {"run": fingerprint, "epoch": epoch, "used": dict(used)}
        write_manifest(temporary, stage="checkpoint", identity=identity, details={"belongs_to": dict(belongs_to)})
    for other in folder.glob("epoch-*"):
        if other != final:
            discard(other)


def bytes_needed(model: keras.Model, folder: Path, *, keep_best: bool) -> int:
    """Greatest disk space of a run's files, beyond the present checkpoints: two checkpoints, or one and two models."""
    network = sum(math.prod(variable.shape) * 4 for variable in model.variables)
    optimizer = sum(math.prod(variable.shape) * 4 for variable in model.optimizer.variables)
    checkpoint = optimizer + network * (2 if keep_best else 1)
    return max(0, checkpoint + max(checkpoint, 2 * network) - used_bytes(folder))


def restore_checkpoint(folder: Path, model: keras.Model, *, fingerprint: str, used: Mapping[str, Any]) -> History:
    """Load the newest valid checkpoint of this run with the same ``used`` into ``model``.

    Returns:
        The history of the run, empty without a usable checkpoint.
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
        before = identity.get("used") or {}
        differing = [name for name, now in used.items() if before.get(name) != now]
        if differing:
            changes = _changes(differing, before, used)
            _logger.warning("Ignoring the checkpoint %s, because it used other inputs: %s", candidate.name, changes)
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
    """Name → variable of the model, with those of its optimizer if they are asked for."""
    variables = [*model.variables, *(model.optimizer.variables if optimizer else ())]
    # Variables may share a path, for example the seed states of two dropouts.
    return {f"{place:04d} {variable.path}": variable for place, variable in enumerate(variables)}


def copied(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    """Copies, because a converted variable may share memory with the next step on a CPU."""
    return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}


@message
def _changes(names: list[str], before: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    return "; ".join(f"{name} was {before.get(name)!r}, is {used[name]!r}" for name in names)
