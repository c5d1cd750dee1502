"""Fine-tuning of pretrained models: frozen layers, and a new last layer by regression.

The last layer has a convex loss, so L-BFGS finds its minimum in seconds, without a learning rate and independent of the
seed. The other layers are frozen meanwhile, and their outputs (features) are computed once for all splits and published
as an artifact. Fitting uses no augmentation, so an example has the same features in every run.
"""

import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import scipy
from safetensors.numpy import load_file, save

from pipeline import progress
from pipeline.artifacts.fingerprint import fingerprint
from pipeline.artifacts.manifest import check_contents, read_manifest, write_manifest
from pipeline.artifacts.publish import publishing
from pipeline.errors import DamagedArtifactError
from pipeline.models.model import last_layer, named_layers
from pipeline.problems.problem import Stream
from pipeline.runs.initial_weights import InitialWeights
from pipeline.settings.training import HEAD, PRETRAINED, TrainSettings

if TYPE_CHECKING:
    import tensorflow as tf

    # Benchmarks of a GPU need no pydantic, which this imports.
    from pipeline.training.launch import FeaturesArtifact
    from pipeline.training.setup import TrainingSetup

# What the settings leave open, but changes the values of features.
_USED = ("backend", "effective_device", "precision", "jit_compile", "computation_flags")
# Decay of the kernel, chosen on a part of the train split of flower_photos (docs/LOG.md).
_DECAY = 1e-2
_DECAYS = (1e-2, 1e-1, 1.0, 10.0, 100.0)
# The default tolerance needs 60% more iterations, for the same answers.
_L_BFGS = {"method": "L-BFGS-B", "options": {"ftol": 1e-6, "maxiter": 1_000}}

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


def effective_fine_tune(settings: TrainSettings, initial: InitialWeights | None) -> str:
    """Return [Train] fine_tune, or an empty text for a model without pretrained weights."""
    return settings.fine_tune if initial and settings.model in PRETRAINED else ""


def freeze_backbone(model: keras.Model, fine_tune: str) -> tuple[str, ...]:
    """Freeze the layers that a value of [Train] fine_tune excludes. Return their names.

    Batch normalization is always excluded, because its statistics are of millions of images. Keras computes a frozen
    one as in inference.
    """
    kinds, head = keras.Layer if fine_tune == HEAD else keras.layers.BatchNormalization, last_layer(model)
    backbone = {name: layer for name, layer in named_layers(model) if layer is not head and isinstance(layer, kinds)}
    frozen = {name: layer for name, layer in backbone.items() if layer.weights and layer.trainable}
    for layer in frozen.values():
        layer.trainable = False
    _logger.info("Froze %d layers for fine_tune = %s.", len(frozen), fine_tune)
    return tuple(frozen)


def fit_head(setup: "TrainingSetup") -> tuple[dict[str, float], dict[str, Features]]:
    """Fit the last layer to the train split. Return the metrics of this as of an epoch, and the features by split."""
    started = time.perf_counter()
    features, features_seconds = find_features(setup)
    head, labels, label_weights = last_layer(setup.model), features["train"].labels, setup.label_weights
    example_weights = np.array([*label_weights.values()], np.float32)[labels] if label_weights else 1
    targets = setup.problem.linear_targets(labels, head.units)
    weights, metrics = fit_linear(features["train"].values, *targets, example_weights)
    # Rounding may differ between hosts.
    *kernel, bias = setup.group.from_chief(weights.tolist())
    head.kernel.assign(kernel)
    head.bias.assign(bias)
    seconds = time.perf_counter() - started
    _logger.info("Fitted the last layer in %.1f s: train loss %.3f", seconds, metrics["loss"])
    rate = round(len(labels) / seconds, 1)
    times = {"train_seconds": round(seconds, 4), "features_seconds": features_seconds, "examples_per_second": rate}
    return {**metrics, **times, "learning_rate": 0.0}, features


def head_model(model: keras.Model) -> keras.Model:
    """The last layer of a compiled model, and what follows it, as a compiled model of features."""
    head = keras.Model(last_layer(model).input, model.outputs[0])
    head.compile(loss=model.loss, jit_compile=model.jit_compile)
    return head


def fit_linear(
    features: np.ndarray, targets: np.ndarray, link: str, example_weights: np.ndarray | int = 1, decay: float = 0.0
) -> tuple[np.ndarray, dict]:
    """Fit a linear layer with L2 decay by L-BFGS. Without a ``decay``, it is that for the link.

    ``features`` are float32 (examples, features) and ``targets`` float32 (examples, outputs). ``link`` is "softmax" for
    one label per example, "sigmoid" for several, or "identity" for values. ``example_weights`` have the mean 1. Return
    the kernel with the bias as last row, float32 (features + 1, outputs), and the ``loss`` and ``accuracy`` of these
    examples.
    """
    shape = features.shape[1] + 1, targets.shape[1]
    shares = np.broadcast_to(np.float32(example_weights) / len(targets), len(targets))
    loss_of, predicted = _LINKS[link]
    decay = decay or (_decay_for_values(features, targets) if link == "identity" else _DECAY)
    # NumPy's products need ten times as long on a busy machine. Those of a GPU may round more.
    with keras.device("cpu"):
        examples = keras.ops.convert_to_tensor(features)

    def product(left: Any, right: Any) -> np.ndarray:
        with keras.device("cpu"):
            return np.array(keras.ops.convert_to_numpy(keras.ops.matmul(left, right)))

    def outputs(parameters: np.ndarray) -> np.ndarray:
        weights = parameters.reshape(shape).astype(np.float32)
        return product(examples, weights[:-1]) + weights[-1]

    # These losses have the same gradient, which is the difference of predictions and targets.
    def loss_and_gradient(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        values, kernel = outputs(parameters), parameters.reshape(shape)[:-1]
        errors = (predicted(values) - targets) * shares[:, None]
        slopes = product(errors.T.astype(np.float32), examples).T
        gradient = np.vstack([slopes + decay * kernel, errors.sum(axis=0)])
        loss = decay / 2 * (kernel**2).sum() + float(shares @ loss_of(values, targets).sum(axis=1, dtype=float))
        return loss, gradient.ravel().astype(float)

    found = scipy.optimize.minimize(loss_and_gradient, np.zeros(shape).ravel(), jac=True, **_L_BFGS)
    values, accuracy = outputs(found.x), None
    if link != "identity":
        is_right = values.argmax(axis=1) == targets.argmax(axis=1) if link == "softmax" else (values > 0) == targets
        accuracy = float(is_right.mean())
    loss = float(shares @ loss_of(values, targets).sum(axis=1, dtype=float))
    # The loss of several labels or values is a mean over them, and that of values the whole square.
    loss *= {"softmax": 1, "sigmoid": 1 / shape[1], "identity": 2 / shape[1]}[link]
    return found.x.reshape(shape).astype(np.float32), {"loss": loss, "accuracy": accuracy}


def _decay_for_values(features: np.ndarray, targets: np.ndarray) -> float:
    """Return the decay with the least squared error on a fifth of the examples, which differs a lot between data."""
    is_held, losses = np.arange(len(targets)) % 5 == 0, {}
    for decay in _DECAYS:
        weights, _ = fit_linear(features[~is_held], targets[~is_held], "identity", decay=decay)
        losses[decay] = ((features[is_held] @ weights[:-1] + weights[-1] - targets[is_held]) ** 2).mean()
    return min(losses, key=losses.__getitem__)


# Name of the link → its loss of outputs and targets, and its predictions.
_LINKS = {
    "softmax": (
        lambda values, targets: -targets * scipy.special.log_softmax(values, axis=1),
        partial(scipy.special.softmax, axis=1),
    ),
    "sigmoid": (lambda values, targets: np.logaddexp(0, values) - targets * values, scipy.special.expit),
    "identity": (lambda values, targets: (values - targets) ** 2 / 2, lambda values: values),
}


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
