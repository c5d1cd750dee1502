"""Checkpoints after each epoch.

A checkpoint contains the variables of the model, with the random state of dropout, those of the optimizer, and the
history of the run. It is published like any artefact. The order of examples depends on seed and epoch alone. A resumed
run ends with the weights of an uninterrupted one, bit for bit on the same CPU. A checkpoint of other hardware, or of
another computation, is refused. Another host with the same hardware adds a segment to the run.
"""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import load_file, save

from pipeline.artefacts.manifest import check_contents, read_manifest, write_manifest
from pipeline.artefacts.publish import discard, publishing
from pipeline.artefacts.space import used_bytes
from pipeline.errors import DamagedArtefactError, message
from pipeline.runs.record import Segment

_STATE_NAME = "state.safetensors"
_HISTORY_NAME = "history.json"
_BEST_NAME = "best.safetensors"
_logger = logging.getLogger(__name__)


@dataclass
class History:
    """The finished epochs of a run, by all processes that trained it.

    ``rows`` are the metrics of its epochs, ``segments`` the epochs of each process, ``seconds`` those of each part of
    the stage up to the newest checkpoint, ``best`` the model's variables after the best epoch, if it is to be kept.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    best: dict[str, np.ndarray] | None = None

    def compiling(self) -> frozenset[int]:
        """The epochs that compiled: the first of each process."""
        return frozenset(segment.first_epoch for segment in self.segments)


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
    for the clean-up: the experiment, and artefacts that the checkpoint needs.
    """
    epoch = len(history.rows)
    final = folder / f"epoch-{epoch:06d}"
    with publishing(final) as temporary:
        (temporary / _STATE_NAME).write_bytes(save(_values(_variables(model))))
        if history.best:
            (temporary / _BEST_NAME).write_bytes(save(history.best))
        (temporary / _HISTORY_NAME).write_text(_to_json(history), encoding="utf-8")
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
        except DamagedArtefactError as error:
            _logger.warning("checkpoint left out: %s", error)
            continue
        if manifest["identity"].get("run") != fingerprint:
            continue
        if differing := _differing(manifest["identity"].get("used") or {}, used):
            _logger.warning(
                "checkpoint %s left out, training starts over: %s",
                candidate.name,
                _differences(differing),
            )
            continue
        state, variables = load_file(candidate / _STATE_NAME), _variables(model)
        if state.keys() == variables.keys():
            for name, variable in variables.items():
                variable.assign(state[name])
            history = _from_json((candidate / _HISTORY_NAME).read_text(encoding="utf-8"))
            if (candidate / _BEST_NAME).exists():
                history.best = load_file(candidate / _BEST_NAME)
            return history
    return History()


def copied_variables(model: keras.Model) -> dict[str, np.ndarray]:
    """Copies of the model's variables, without those of the optimizer."""
    return _values(_by_place(model.variables))


def put_variables(model: keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Assign values from ``copied_variables``."""
    for name, variable in _by_place(model.variables).items():
        variable.assign(values[name])


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (before.get(name), value) for name, value in now.items() if before.get(name) != value}


@message
def _differences(differing: Mapping[str, tuple[object, object]]) -> str:
    return "; ".join(f"{name} was {before!r}, is {now!r}" for name, (before, now) in differing.items())


def _to_json(history: History) -> str:
    segments = [segment.model_dump(mode="json") for segment in history.segments]
    return json.dumps({"rows": history.rows, "segments": segments, "seconds": history.seconds})


def _from_json(text: str) -> History:
    found = json.loads(text)
    segments = [Segment.model_validate(segment) for segment in found["segments"]]
    return History(found["rows"], segments, found["seconds"])


def _variables(model: keras.Model) -> dict[str, keras.Variable]:
    return _by_place([*model.variables, *model.optimizer.variables])


def _values(variables: Mapping[str, keras.Variable]) -> dict[str, np.ndarray]:
    # Copies, because a converted variable may share memory with the next step on a CPU.
    return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}


def _by_place(variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    # Variables may share a path, for example the seed states of two dropouts.
    return {f"{place:04d} {variable.path}": variable for place, variable in enumerate(variables)}
