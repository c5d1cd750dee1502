"""Setup of a training: devices, input streams, hardware receipt and compiled model."""

import contextlib
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import keras
import numpy as np

from pipeline.augmentation import Augmentation
from pipeline.errors import plural, refuse
from pipeline.hardware.placement import Placement, choose_jit_compile, choose_precision
from pipeline.hardware.receipt import Receipt, verdict, with_processes, write_receipt
from pipeline.hardware.runtime import computation_flags
from pipeline.models.build import has_depthwise_convolutions, kind_of_outputs
from pipeline.models.cpu_kernels import without_fast_kernels
from pipeline.problems import problem_of_records
from pipeline.problems.problem import open_split
from pipeline.runs.metrics import compiling_epochs
from pipeline.runs.record import STAGE_PHASES
from pipeline.settings.training import JAX, refuse_without_validation
from pipeline.streams.numpy_stream import ColumnStream
from pipeline.streams.tf_data import InputStream, fits_in_memory
from pipeline.training.fine_tuning import effective_fine_tune
from pipeline.training.launch import TrainRequest
from pipeline.training.model import begin, compiled_model, label_weights

_EVALUATION_BATCH_SIZE = 1_000
# Limit of input bytes per evaluation batch. With 1,000 images of 160 pixels, EfficientNet-Lite0 needs 5.5 GB.
_EVALUATION_INPUT_BYTES = 8 * 2**20
# Limit of output values per evaluation batch. A sequence has outputs for each token.
_EVALUATION_OUTPUTS = 2**24
# Splits to evaluate, which are also prefixes of their metrics.
EVALUATED_SPLITS = ("test", "validation")
# With fewer steps per epoch, training warns.
_FEW_STEPS = 10

_logger = logging.getLogger(__name__)


class Clock:
    """Stopwatch for the phases of the stage. It starts in the phase "startup"."""

    def __init__(self, started: float | None) -> None:
        """Start at the ``time.perf_counter`` value ``started``, or now if it is None."""
        #: Seconds of the finished phases, including those of earlier processes of the same run.
        self.spent = Counter(dict.fromkeys(STAGE_PHASES, 0.0))
        self._phase, self._entered = STAGE_PHASES[0], time.perf_counter() if started is None else started

    def enter(self, phase: str) -> None:
        """End the current phase and start another."""
        now = time.perf_counter()
        self.spent[self._phase] += now - self._entered
        self._phase, self._entered = phase, now

    def seconds(self) -> dict[str, float]:
        """Seconds per phase until now."""
        self.enter(self._phase)
        return dict(self.spent)


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


@dataclass
class TrainingSetup:
    """Devices, streams, hardware receipt and compiled model of a training, and the history of its run.

    ``manifest`` is that of the records.
    """

    request: TrainRequest
    folder: Path
    manifest: Mapping
    request_fields: Mapping
    placement: Placement
    clock: Clock
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        """Open the streams, write the receipt and compile the model."""
        request, manifest, placement, clock = self.request, self.manifest, self.placement, self.clock
        self.group, self.settings = request.group, request.settings
        settings = self.settings
        placement.runtime.reset_peak_memory()
        # An earlier stage in this process may have a higher peak. Only Linux can reset it.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self.fine_tune = effective_fine_tune(settings, request.initial)
        self.jit_compile = choose_jit_compile(settings.jit_compile, placement)
        self.problem = problem_of_records(manifest)
        self.task = self.problem.task(manifest)
        is_depthwise = partial(has_depthwise_convolutions, settings.model, self.task)
        self.precision = choose_precision(settings.precision, placement, is_depthwise)
        clock.enter("loading")
        self.stream = _training_stream(request, manifest, placement)
        self.evaluated = evaluation_streams(request.records, manifest, placement.num_replicas, settings.seed)
        clock.enter("startup")
        self.receipt = self._write_receipt()
        self.outputs = kind_of_outputs(self.task, settings.model, self.precision)
        self.labels_mixed = bool(self.stream.augmentation and self.stream.augmentation.mixes)
        self.label_weights = label_weights(manifest, settings)

        def prepare(model: keras.Model) -> None:
            weights = request.seeded_weights
            self.beginning = begin(model, settings, request.initial, self.stream, seeded_weights=weights)

        options = {"outputs": self.outputs, "labels_mixed": self.labels_mixed, "prepare": prepare}
        self.model = compiled_model(manifest, settings, placement, self.stream.steps_per_epoch, **options)
        # With TensorFlow, Keras does not compile models with some layers.
        self.jit_compile = self.model.jit_compile

    def used(self) -> dict:
        """Fields of the record that must be equal to resume from a checkpoint: hardware and computation."""
        return {
            **{name: self.receipt[name] for name in ("backend", "effective_device", "device_name", "num_replicas")},
            "precision": self.precision,
            "jit_compile": self.jit_compile,
            # A stream from disk has another order of examples.
            "input_in_memory": self.stream.in_memory,
            "computation_flags": computation_flags(os.environ),
        }

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context of an evaluation. It uses Keras's operations, as the saved model does."""
        with self.placement.runtime.evaluating(self.placement.strategy), without_fast_kernels():
            yield

    def _write_receipt(self) -> Receipt:
        """Write and log the receipt, with the devices of all processes."""
        settings, group = self.settings, self.group
        receipt = write_receipt(settings, self.placement, self.precision)
        if group.processes > 1:
            receipt = with_processes(receipt, group.gather)
            devices = f"{len(receipt['logical_devices'])} {receipt['effective_device']}, {self.precision}"
            group.check_equal("devices", devices)
        if receipt["mismatch"]:
            _logger.warning("Falling back to %s. %s", receipt["effective_device"], receipt["mismatch"]["cause"])
        _logger.info(
            "Training %s on %s (%s, %s%s), %s%s%s",
            *(settings.model, receipt["effective_device"], receipt["device_name"], verdict(receipt)),
            f", requested {settings.device}" if settings.device != "auto" else "",
            self.precision,
            f", {receipt['num_replicas']} replicas" if receipt["num_replicas"] > 1 else "",
            " with XLA" if self.jit_compile else "",
        )
        return receipt


def _training_stream(request: TrainRequest, manifest: Mapping, placement: Placement) -> InputStream:
    """Stream of the train split. SettingsError: the batch or a required validation split does not fit the data."""
    settings, group, replicas = request.settings, request.group, placement.num_replicas
    refuse_without_validation(settings, manifest["splits"])
    train = open_split(request.records, manifest, "train")
    size = settings.global_batch_size
    if size > train.num_examples:
        refuse("Train", "global_batch_size", f"at most the {train.num_examples} examples of the train split", size)
    if size % replicas:
        refuse("Train", "global_batch_size", f"a multiple of the {replicas} replicas", size)
    if (steps := train.num_examples // size) < _FEW_STEPS and "global_batch_size" not in request.chosen:
        _logger.warning(
            "An epoch has only %s of %s examples. With so few steps, a model learns little. Pass a smaller "
            "--Train-global-batch-size, such as %d.",
            *(plural(steps, "step"), f"{size:,}", max(1, train.num_examples // _FEW_STEPS // replicas) * replicas),
        )
    in_memory = settings.cache == "memory"
    if settings.cache == "auto":
        # A stream from disk has another order of examples, so all processes use the same source.
        in_memory = all(group.gather(fits_in_memory(train)))
    augmentation = columns = None
    if settings.augment:
        augmentation = Augmentation(settings.augment, seed=settings.seed, image_shape=train.content_shape)
    options = {"global_batch_size": size, "seed": settings.seed, "process_share": (group.rank, group.processes)}
    # This stream yields the same batches as tf.data, without TensorFlow.
    if placement.runtime.backend == JAX and train.layout is not None and in_memory and augmentation is None:
        columns = ColumnStream(train, **options)
    return InputStream(train, in_memory=in_memory, augmentation=augmentation, columns=columns, **options)


def evaluation_streams(folder: Path, manifest: Mapping, replicas: int, seed: int) -> dict[str, InputStream]:
    """Split name → evaluation stream, for the test split and, if it exists, the validation split."""
    task, streams = problem_of_records(manifest).task(manifest), {}
    per_batch = _EVALUATION_OUTPUTS // math.prod(task.output_shape)
    per_batch = min(_EVALUATION_BATCH_SIZE, per_batch, _EVALUATION_INPUT_BYTES // math.prod(task.input_shape))
    for name in EVALUATED_SPLITS:
        if name in manifest["splits"]:
            split = open_split(folder, manifest, name)
            limit = max(1, min(per_batch, split.num_examples))
            # Keras sums the replicas' batch sizes of the first batch, so they must be equal.
            size = max(1, limit // replicas) * replicas
            streams[name] = InputStream(split, global_batch_size=size, seed=seed)
    return streams
