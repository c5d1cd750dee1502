"""The input streams of a training."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path

from pipeline.augmentation.augment import Augmentation
from pipeline.columns import ColumnStream
from pipeline.config.refusal import refuse
from pipeline.config.training import JAX, TrainSettings, refuse_without_validation
from pipeline.hardware.placement import Placement
from pipeline.problems.problem import Task
from pipeline.stream import InputStream, Split, fits_in_memory
from pipeline.training.computation import Computation
from pipeline.training.process_group import ProcessGroup

EVALUATION_BATCH_SIZE = 1_000
# Limit per batch of the evaluation, because a sequence has outputs for each token.
EVALUATION_OUTPUTS = 2**24
_TPU_CORE_EXAMPLES = 8
# Prefix of the figures → split. Records use Keras's prefix for the test split.
EVALUATED_SPLITS = {"val": "test", "validation": "validation"}

_logger = logging.getLogger(__name__)


def open_streams(
    folder: Path,
    manifest: Mapping,
    settings: TrainSettings,
    placement: Placement,
    computation: Computation,
    group: ProcessGroup,
) -> tuple[InputStream, dict[str, InputStream]]:
    """The stream of the train split, and the streams to evaluate by the prefix of their figures.

    Raises:
        SettingsError: the batch does not fit the data or the replicas, or a required validation split is absent.
    """
    refuse_without_validation(settings, manifest["splits"])
    train = Split.of_manifest(folder, manifest, "train")
    size, replicas = settings.global_batch_size, placement.num_replicas
    if size > train.num_examples:
        refuse("Train", "global_batch_size", f"at most the {train.num_examples} examples of the train split", size)
    if size % replicas:
        refuse("Train", "global_batch_size", f"a multiple of the {replicas} replicas", size)
    if placement.effective_device == "tpu" and size // replicas < _TPU_CORE_EXAMPLES:
        _logger.warning(
            "[Train] global_batch_size: %d over %d TPU cores are %d examples a core; fewer than %d leave it idle, 128 "
            "suit it best: %d",
            *(size, replicas, size // replicas, _TPU_CORE_EXAMPLES, 128 * replicas),
        )
    in_memory = computation.in_memory
    if in_memory is None:
        # The order of an epoch from disk differs, so all processes decide alike.
        in_memory = all(group.gather(fits_in_memory(train)))
    augmentation = None
    if settings.augment:
        augmentation = Augmentation(settings.augment, seed=settings.seed, image_shape=train.content_shape)
    how = {
        "global_batch_size": size,
        "seed": settings.seed,
        "part": (group.rank, group.processes),
    }
    columns = None
    # The same batches as those from memory, without TensorFlow.
    if placement.runtime.backend == JAX and train.layout is not None and in_memory and augmentation is None:
        columns = ColumnStream(folder, manifest, "train", **how)
    stream = InputStream(train, in_memory=in_memory, augmentation=augmentation, columns=columns, **how)
    return stream, evaluation_streams(folder, manifest, replicas=replicas, seed=settings.seed)


def evaluation_streams(folder: Path, manifest: Mapping, *, replicas: int, seed: int) -> dict[str, InputStream]:
    """The streams of the existing splits to evaluate, by the prefix of their figures."""
    return {
        prefix: _evaluation_stream(split, split.problem.task(manifest), replicas, seed)
        for prefix, name in EVALUATED_SPLITS.items()
        if name in manifest["splits"]
        for split in (Split.of_manifest(folder, manifest, name),)
    }


def _evaluation_stream(split: Split, task: Task, replicas: int, seed: int) -> InputStream:
    most = max(1, min(EVALUATION_BATCH_SIZE, EVALUATION_OUTPUTS // math.prod(task.output_shape), split.num_examples))
    # Keras adds up the replicas' shares of the first batch, so they must be equal.
    size = max(1, most // replicas) * replicas
    return InputStream(split, global_batch_size=size, seed=seed)
