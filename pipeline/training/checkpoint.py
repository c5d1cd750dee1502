"""Checkpoints: what a run needs to go on after its last finished epoch as if nothing had happened (training's aid).

A checkpoint holds every variable of the model, its dropout's random state among them, every variable of the optimizer,
and the metrics so far. It is published like any artefact, whole or not at all and with its sha256, one folder an epoch;
the order of an epoch's examples follows from seed and epoch and needs no state. A resumed run ends with the weights of
an uninterrupted one, bit for bit on the same CPU.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import keras
from safetensors.numpy import load_file, save_file

from pipeline.artefacts.manifest import check_contents, discard, publishing, read_manifest, write_manifest
from pipeline.errors import DamagedArtefactError

_STATE_NAME = "state.safetensors"
_ROWS_NAME = "metrics.json"
_logger = logging.getLogger(__name__)


def save_checkpoint(folder: Path, model: keras.Model, rows: Sequence[Mapping[str, float]], *, fingerprint: str) -> None:
    """Publish the state after ``len(rows)`` finished epochs below ``folder``, then drop the one before it."""
    final = folder / f"epoch-{len(rows):06d}"
    with publishing(final) as temporary:
        save_file(
            {name: keras.ops.convert_to_numpy(variable) for name, variable in _variables(model).items()},
            temporary / _STATE_NAME,
        )
        (temporary / _ROWS_NAME).write_text(json.dumps(rows), encoding="utf-8")
        write_manifest(temporary, stage="checkpoint", identity={"run": fingerprint, "epoch": len(rows)}, details={})
    for other in folder.glob("epoch-*"):
        if other != final:
            discard(other)


def restore_checkpoint(folder: Path, model: keras.Model, *, fingerprint: str) -> list[dict[str, float]]:
    """Put the newest whole checkpoint of this run into ``model``; the metrics of the epochs it has behind it.

    Returns:
        One row for each finished epoch; none where there is no checkpoint that can be used.
    """
    for candidate in sorted(folder.glob("epoch-*"), reverse=True):
        try:
            manifest = read_manifest(candidate)
            check_contents(candidate, manifest)
        except DamagedArtefactError as error:
            _logger.warning("checkpoint left out: %s", error)
            continue
        state, variables = load_file(candidate / _STATE_NAME), _variables(model)
        if manifest["identity"].get("run") == fingerprint and state.keys() == variables.keys():
            for name, variable in variables.items():
                variable.assign(state[name])
            return json.loads((candidate / _ROWS_NAME).read_text(encoding="utf-8"))
    return []


def _variables(model: keras.Model) -> dict[str, keras.Variable]:
    """Place and path → variable; the place keeps apart those that share a path, like two dropouts' seed states."""
    variables = [*model.variables, *model.optimizer.variables]
    return {f"{place:04d} {variable.path}": variable for place, variable in enumerate(variables)}
