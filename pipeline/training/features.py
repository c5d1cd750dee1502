"""Outputs of a frozen backbone for all splits (features), computed once and published as an artifact.

Fitting the last layer uses no augmentation, so an example has the same features in every run.
"""

import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import keras
import numpy as np
from safetensors.numpy import load_file, save

from pipeline import progress
from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.manifest import check_contents, read_manifest, write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.errors import DamagedArtifactError
from pipeline.models.model import last_layer
from pipeline.problems.problem import Stream

if TYPE_CHECKING:
    import tensorflow as tf

    # Benchmarks of a GPU need no pydantic, which this imports.
    from pipeline.training.launch import FeaturesArtifact
    from pipeline.training.setup import TrainingSetup

# What the settings leave open, but changes the values.
_USED = ("backend", "effective_device", "precision", "jit_compile", "computation_flags")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Features:
    """Inputs of the last layer, float32 (examples, features), and labels of a split, in its stored order."""

    values: np.ndarray
    labels: np.ndarray
    global_batch_size: int

    def evaluation(self) -> "tf.data.Dataset":
        """Iterate once over all examples, like ``Stream.evaluation``."""
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((self.values, self.labels)).batch(self.global_batch_size)


def find_features(setup: "TrainingSetup") -> tuple[dict[str, Features], float]:
    """Read the features of each split from their artifact. If there is none, compute them and publish it.

    Return them with the seconds that they took to compute, 0 if they were read.
    """
    streams: Mapping[str, Stream] = {"train": setup.stream, **setup.evaluated}
    artifact, used = setup.request.features, {name: setup.used()[name] for name in _USED}
    is_stored, seconds = artifact is not None and _is_valid(artifact, used), 0.0
    # Another process may see a new file later, and all must compute together.
    if setup.group.from_chief(is_stored):
        _logger.info("Reading the features of the frozen layers from %s.", artifact.folder)
        columns = {split: load_file(artifact.folder / f"{split}.safetensors") for split in streams}
    else:
        started = time.perf_counter()
        with setup.evaluating():
            columns = _compute(setup.model, streams)
        seconds = round(time.perf_counter() - started, 4)
        if artifact and setup.group.is_chief:
            num_bytes = sum(array.nbytes for one in columns.values() for array in one.values())
            about = {"experiment": artifact.experiment, "host": socket.gethostname(), "used": used, "seconds": seconds}
            with publishing(artifact.folder, bytes_needed=num_bytes) as folder:
                for split, one in columns.items():
                    # save_file restricts the file to its owner.
                    (folder / f"{split}.safetensors").write_bytes(save(one))
                write_manifest(folder, stage="Features", identity=artifact.identity, details=about)
            _logger.info(
                "Published the features of the frozen layers, %.1f MB, in %s.", num_bytes / 1e6, artifact.folder
            )
    sizes = {split: stream.global_batch_size for split, stream in streams.items()}
    return {split: Features(one["features"], one["labels"], sizes[split]) for split, one in columns.items()}, seconds


def _compute(model: keras.Model, streams: Mapping[str, Stream]) -> dict[str, dict[str, np.ndarray]]:
    spec = streams["train"].evaluation().element_spec[1]
    labels = keras.Input(spec.shape[1:], dtype=spec.dtype.name)
    backbone = keras.Model([*model.inputs, labels], [last_layer(model).input, labels])
    backbone.compile(jit_compile=model.jit_compile)
    total, finished = sum(stream.split.num_examples for stream in streams.values()), 0
    columns = {}
    for split, stream in streams.items():

        def report(batch: int, logs: object, first: int = finished, size: int = stream.global_batch_size) -> None:
            progress.report("Computing features", first + (batch + 1) * size, total, unit="images")

        batches = stream.evaluation().map(lambda images, labels: ((images, labels),))
        callbacks = [keras.callbacks.LambdaCallback(on_predict_batch_end=report)]
        values, known = backbone.predict(batches, verbose=0, callbacks=callbacks)
        columns[split] = {"features": np.ascontiguousarray(values, np.float32), "labels": known}
        finished += len(known)
    return columns


def _is_valid(artifact: "FeaturesArtifact", used: Mapping) -> bool:
    """Whether the artifact is here, undamaged, and was computed as this run computes."""
    try:
        manifest = read_manifest(artifact.folder)
        check_contents(artifact.folder, manifest)
    except DamagedArtifactError:
        return False
    return manifest["fingerprint"] == fingerprint(artifact.identity) and manifest.get("used") == used
