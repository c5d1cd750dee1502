"""Checkpoints: what a run needs to resume after its last finished epoch as if nothing had happened (training's aid).

A checkpoint holds every variable of the model, its dropout's random state among them, every variable of the optimizer,
and what the run has behind it. It is published like any artefact, valid or not there and with its sha256, one folder an
epoch; the order of an epoch's examples follows from seed and epoch and needs no state. A resumed run ends with the
weights of an uninterrupted one, bit for bit on the same CPU.

A checkpoint of other hardware, or of another way to compute, is refused: the record of a run vouches for one of each.
The host may be another one, if it is the same hardware; the run then has segments, each with its own evidence.
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
from pipeline.errors import DamagedArtefactError
from pipeline.runs.record import Segment
from pipeline.training import words

_STATE_NAME = "state.safetensors"
_HISTORY_NAME = "history.json"
_BEST_NAME = "best.safetensors"
_logger = logging.getLogger(__name__)


@dataclass
class History:
    """What a run has behind it, by all processes that trained it.

    ``rows`` are the metrics of its epochs, ``segments`` the epochs of each process, ``seconds`` those of each part of
    the stage up to the newest checkpoint; what a process did after its last one is done again, and not counted.
    ``best`` are the model's variables after the best epoch, where that one is to be kept.
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
    """Publish the state after the last epoch of ``history`` below ``folder``, then drop the one before it.

    ``used``, plain JSON data, is the hardware and the computation that a process must have to resume from it.
    ``belongs_to`` is for who cleans up: whose it is, and what else must stay for it to be of use.
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
    """The most that the files of a run of this compiled network are to take, beyond what its checkpoints have by now.

    That is two checkpoints, for one is dropped when the next is there, or one and the network as it is saved, twice.
    """
    network = sum(math.prod(variable.shape) * 4 for variable in model.variables)
    optimizer = sum(math.prod(variable.shape) * 4 for variable in model.optimizer.variables)
    checkpoint = optimizer + network * (2 if keep_best else 1)
    return max(0, checkpoint + max(checkpoint, 2 * network) - used_bytes(folder))


def restore_checkpoint(folder: Path, model: keras.Model, *, fingerprint: str, used: Mapping[str, Any]) -> History:
    """Put the newest valid checkpoint of this run, made with the same ``used``, into ``model``.

    Returns:
        What the run has behind it; nothing where there is no checkpoint that can be used.
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
                words.differences(differing),
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
    """The values that the model's variables have now, its optimizer's left out."""
    return _values(_by_place(model.variables))


def put_variables(model: keras.Model, values: Mapping[str, np.ndarray]) -> None:
    """Give the model's variables the values they had when they were copied."""
    for name, variable in _by_place(model.variables).items():
        variable.assign(values[name])


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (before.get(name), value) for name, value in now.items() if before.get(name) != value}


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
    # Copies: on a CPU what is converted may share the memory that the next step writes to.
    return {name: np.array(keras.ops.convert_to_numpy(variable)) for name, variable in variables.items()}


def _by_place(variables: Sequence[keras.Variable]) -> dict[str, keras.Variable]:
    """Place and path → variable; the place keeps apart those that share a path, like two dropouts' seed states."""
    return {f"{place:04d} {variable.path}": variable for place, variable in enumerate(variables)}
