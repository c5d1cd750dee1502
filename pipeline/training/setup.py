"""Everything that a training needs before its first step, built in one place."""

import contextlib
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import keras

from pipeline.augmentation.augment import Augmentation
from pipeline.hardware.backend import computation_flags
from pipeline.hardware.placement import Placement, choose_jit_compile, choose_precision
from pipeline.hardware.receipt import Receipt, verdict, with_processes, write_receipt
from pipeline.models.build import kind_of_outputs
from pipeline.models.cpu_kernels import as_keras
from pipeline.problems import problem_of_records
from pipeline.problems.problem import open_split
from pipeline.runs.record import STAGE_PARTS
from pipeline.settings.setting_error import refuse
from pipeline.settings.training import JAX, refuse_without_validation
from pipeline.streams.numpy_stream import ColumnStream
from pipeline.streams.tf_data import InputStream, fits_in_memory
from pipeline.training.launch import TrainRequest
from pipeline.training.model import begin, compiled_model

_EVALUATION_BATCH_SIZE = 1_000
# Limit per batch of the evaluation, because a sequence has outputs for each token.
_EVALUATION_OUTPUTS = 2**24
# Prefix of the figures → split. Records use Keras's prefix for the test split.
EVALUATED_SPLITS = ("test", "validation")

_logger = logging.getLogger(__name__)


class Clock:
    """Adds the time to the part of the stage that was entered last, at first "startup"."""

    def __init__(self, started: float | None) -> None:
        """``started``: the time.perf_counter at the start of the stage, by default now."""
        self._seconds = dict.fromkeys(STAGE_PARTS, 0.0)
        self._part, self._since = STAGE_PARTS[0], time.perf_counter() if started is None else started

    def enter(self, part: str) -> None:
        """Add the time from now on to ``part``."""
        now = time.perf_counter()
        self._seconds[self._part] += now - self._since
        self._part, self._since = part, now

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of an earlier process of the same run."""
        for part, more in seconds.items():
            self._seconds[part] += more

    def seconds(self) -> dict[str, float]:
        """Part → seconds until now."""
        self.enter(self._part)
        return dict(self._seconds)


class TrainingSetup:
    """The parts of a training: devices, streams, the receipt and the compiled model."""

    def __init__(
        self,
        request: TrainRequest,
        folder: Path,
        manifest: Mapping,
        known: Mapping,
        placement: Placement,
        clock: Clock,
    ) -> None:
        """Open the streams, write the receipt and compile the model.

        ``manifest`` is that of the records, and ``known`` has the fields of the record that are known already.
        """
        self.request, self.folder, self.manifest, self.known = request, folder, manifest, known
        self.placement, self.clock, self.group = placement, clock, request.group
        self.settings = settings = request.settings
        placement.runtime.reset_peak_memory()
        # An earlier stage ran in the same process. The host's peak can be reset on Linux only.
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        self.precision = choose_precision(settings.precision, placement)
        self.jit_compile = choose_jit_compile(settings.jit_compile, placement)
        self.problem = problem_of_records(manifest)
        self.task = self.problem.task(manifest)
        clock.enter("loading")
        self.stream = _training_stream(request, manifest, placement)
        self.evaluated = evaluation_streams(request.records, manifest, placement.num_replicas, settings.seed)
        clock.enter("startup")
        self.receipt = self._write_receipt()
        self.outputs = kind_of_outputs(self.task, settings.model, self.precision)
        augmentation = self.stream.augmentation
        self.model = compiled_model(
            manifest,
            settings,
            placement,
            self.stream.steps_per_epoch,
            outputs=self.outputs,
            labels_mixed=bool(augmentation and augmentation.mixes),
            prepare=self._begin,
        )

    def _begin(self, model: keras.Model) -> None:
        request = self.request
        self.beginning = begin(model, self.settings, request.initial, self.stream, drawn=request.drawn)

    def used(self) -> dict:
        """Hardware and computation: fields of the record that a process must share to resume from a checkpoint."""
        return {
            **{name: self.receipt[name] for name in ("backend", "effective_device", "device_name", "num_replicas")},
            "precision": self.precision,
            "jit_compile": self.jit_compile,
            # The order of an epoch from disk differs.
            "input_in_memory": self.stream.in_memory,
            "computation_flags": computation_flags(os.environ),
        }

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """The context of an evaluation, with Keras's own operations, as in the saved model."""
        with self.placement.evaluating(), as_keras():
            yield

    def _write_receipt(self) -> Receipt:
        """The receipt, with the devices of the other processes. It is logged."""
        settings, group = self.settings, self.group
        receipt = write_receipt(settings, self.placement, self.precision)
        if group.processes > 1:
            receipt = with_processes(receipt, group.gather)
            share = f"{len(receipt['logical_devices'])} {receipt['effective_device']}, {self.precision}"
            group.check_equal("devices", share)
        if receipt["mismatch"]:
            _logger.warning("Falling back to %s. %s", receipt["effective_device"], receipt["mismatch"]["cause"])
        _logger.info(
            "Training %s on %s (%s), device %s, requested %s, %s, %d %s, XLA %s",
            *(settings.model, receipt["effective_device"], receipt["device_name"]),
            verdict(receipt),
            *(settings.device, self.precision, receipt["num_replicas"]),
            "replica" if receipt["num_replicas"] == 1 else "replicas",
            "on" if self.jit_compile else "off",
        )
        return receipt


def _training_stream(request: TrainRequest, manifest: Mapping, placement: Placement) -> InputStream:
    """The stream of the train split. SettingsError: a batch or a required validation split does not fit the data."""
    settings, group, replicas = request.settings, request.group, placement.num_replicas
    refuse_without_validation(settings, manifest["splits"])
    train = open_split(request.records, manifest, "train")
    size = settings.global_batch_size
    if size > train.num_examples:
        refuse("Train", "global_batch_size", f"at most the {train.num_examples} examples of the train split", size)
    if size % replicas:
        refuse("Train", "global_batch_size", f"a multiple of the {replicas} replicas", size)
    in_memory = settings.cache == "memory"
    if settings.cache == "auto":
        # The order of an epoch from disk differs, so all processes decide alike.
        in_memory = all(group.gather(fits_in_memory(train)))
    augmentation = columns = None
    if settings.augment:
        augmentation = Augmentation(settings.augment, seed=settings.seed, image_shape=train.content_shape)
    how = {"global_batch_size": size, "seed": settings.seed, "part": (group.rank, group.processes)}
    # The same batches as those from memory, without TensorFlow.
    if placement.runtime.backend == JAX and train.layout is not None and in_memory and augmentation is None:
        columns = ColumnStream(train, **how)
    return InputStream(train, in_memory=in_memory, augmentation=augmentation, columns=columns, **how)


def evaluation_streams(folder: Path, manifest: Mapping, replicas: int, seed: int) -> dict[str, InputStream]:
    """The streams of the existing splits to evaluate, by name."""
    outputs, streams = math.prod(problem_of_records(manifest).task(manifest).output_shape), {}
    for name in EVALUATED_SPLITS:
        if name in manifest["splits"]:
            split = open_split(folder, manifest, name)
            most = max(1, min(_EVALUATION_BATCH_SIZE, _EVALUATION_OUTPUTS // outputs, split.num_examples))
            # Keras adds up the replicas' shares of the first batch, so they must be equal.
            size = max(1, most // replicas) * replicas
            streams[name] = InputStream(split, global_batch_size=size, seed=seed)
    return streams
