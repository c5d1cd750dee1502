"""Everything that a training needs before its first step, built in one place."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import keras

from pipeline.config.training import TrainSettings
from pipeline.errors import message
from pipeline.hardware.placement import Placement
from pipeline.hardware.receipt import Receipt, seen_here, verdict, with_processes, write_receipt
from pipeline.networks.build import kind_of_outputs
from pipeline.networks.cpu_kernels import as_keras
from pipeline.problems.problem import Problem
from pipeline.stream import InputStream
from pipeline.training.breakdown import Clock, reset_peak_memory
from pipeline.training.computation import Computation, by_rule, compiled_model, warn_of_memory
from pipeline.training.initial import begin
from pipeline.training.inputs import open_streams
from pipeline.training.process_group import ProcessGroup
from pipeline.training.request import TrainRequest
from pipeline.training.results import known_fields, used_by

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TrainingSetup:
    """The parts of a training.

    Attributes:
        request: what to train.
        folder: for the run's files.
        manifest: that of the records.
        group: the processes that train together.
        clock: adds up the parts of the stage's time.
        known: fields of the record that are known before the first step.
        placement: the devices.
        computation: precision, XLA and steps per execution.
        receipt: the evidence of the devices before the first step.
        stream: the train split.
        evaluated: prefix of the figures → split to evaluate.
        model: compiled.
    """

    request: TrainRequest
    folder: Path
    manifest: Mapping
    group: ProcessGroup
    clock: Clock
    known: Mapping
    placement: Placement
    computation: Computation
    receipt: Receipt
    stream: InputStream
    evaluated: Mapping[str, InputStream]
    model: keras.Model

    @property
    def settings(self) -> TrainSettings:
        """The settings of the request."""
        return self.request.settings

    @property
    def problem(self) -> Problem:
        """The problem of the records."""
        return self.stream.split.problem

    def used(self) -> dict:
        """Hardware and computation, as fields of the record."""
        return used_by(self.receipt, self.computation, self.stream)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The context of an evaluation, with Keras's own operations, as in the saved model."""
        with self.placement.evaluating(), as_keras():
            yield


def prepare(
    request: TrainRequest, folder: Path, manifest: Mapping, placement: Placement, group: ProcessGroup, clock: Clock
) -> TrainingSetup:
    """Open the streams, write the receipt and compile the model."""
    settings = request.settings
    reset_peak_memory(placement.runtime)
    computation = by_rule(settings, placement)
    clock.enter("loading")
    stream, evaluated = open_streams(request.records, manifest, settings, placement, computation, group)
    clock.enter("startup")
    receipt = _receipt(settings, placement, computation, group)
    model, beginning = compiled_model(
        manifest,
        settings,
        placement,
        computation,
        stream.steps_per_epoch,
        outputs=kind_of_outputs(manifest, settings.model, computation.precision),
        labels_mixed=bool(stream.augmentation and stream.augmentation.mixes),
        begin=lambda model: begin(model, settings, request.initial, stream),
        drawn=request.drawn,
    )
    warn_of_memory(model, settings.global_batch_size, placement)
    return TrainingSetup(
        request=request,
        folder=folder,
        manifest=manifest,
        group=group,
        clock=clock,
        known={**known_fields(request, manifest), "beginning": beginning},
        placement=placement,
        computation=computation,
        receipt=receipt,
        stream=stream,
        evaluated=evaluated,
        model=model,
    )


def _receipt(settings: TrainSettings, placement: Placement, computation: Computation, group: ProcessGroup) -> Receipt:
    """The receipt, with those of the other processes. It is logged."""
    receipt = write_receipt(settings, placement, computation.precision)
    if group.processes > 1:
        receipt = with_processes(receipt, group.gather(seen_here(receipt)))
        share = f"{len(receipt['logical_devices'])} {receipt['effective_device']}, {computation.precision}"
        group.check_equal(_shared_devices(), share)
    if receipt["mismatch"]:
        _logger.warning("FALLBACK to %s: %s", receipt["effective_device"], receipt["mismatch"]["cause"])
    _logger.info(
        "training %s on %s (requested %s, %s; %s), %d replica(s), %s, XLA %s",
        *(settings.model, receipt["effective_device"], settings.device),
        verdict(receipt),
        *(receipt["device_name"], receipt["num_replicas"], computation.precision),
        "on" if computation.jit_compile else "off",
    )
    return receipt


@message
def _shared_devices() -> str:
    return "device, number of devices and precision"
