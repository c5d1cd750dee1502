"""The interface of learning problems. Importing it needs no numerical library.

``columns`` are those of a batch of records, by feature, without their keys; ``manifest`` is that of the records.
"""

import abc
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pipeline.config.training import TrainSettings
from pipeline.problems.units import Units, units_of

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf


@dataclass(frozen=True)
class Task:
    """Shapes and ranges that a model needs.

    ``input_shape`` is that of one example, uint8, and ``inputs`` the upper bound of its values. ``label_shape`` is that
    of one example's labels, int32, () for one label, and ``num_labels`` their upper bound.
    """

    input_shape: tuple[int, ...]
    inputs: int
    label_shape: tuple[int, ...]
    num_labels: int

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of one example: a number for each label of each prediction."""
        return (*self.label_shape, self.num_labels)

    @property
    def predictions_per_example(self) -> int:
        """Number of labels of an example."""
        return math.prod(self.label_shape)


@dataclass(frozen=True)
class Shown:
    """The contents of evaluation.json, and ``text`` and ``images`` by name for TensorBoard."""

    facts: dict
    text: Mapping[str, str]
    images: Mapping[str, "np.ndarray"]


class Stream(Protocol):
    """The part of an input stream that a problem uses."""

    split: Any
    augmentation: Any

    def evaluation(self) -> "tf.data.Dataset":
        """One pass over the split in its stored order."""


def examples_at(stream: Stream, places: Sequence[int]) -> list[tuple["np.ndarray", "np.ndarray"]]:
    """Inputs and labels of the examples at these places of the stored order, in one pass."""
    found, start = {}, 0
    for inputs, labels in stream.evaluation().as_numpy_iterator():
        here = [place for place in places if start <= place < start + len(inputs)]
        found |= {place: (inputs[place - start], labels[place - start]) for place in here}
        start += len(inputs)
    return [found[place] for place in places]


class Problem(abc.ABC):
    """A learning problem: inputs, targets, figures and evaluation."""

    #: Name in records and runs.
    name: ClassVar[str]
    #: Features of the records that the stream reads, the content first.
    columns: ClassVar[tuple[str, ...]]
    #: Whether [Train] augment applies.
    can_augment: ClassVar[bool] = False
    #: units.BYTES for a text that is predicted byte by byte.
    tokens: str = ""
    #: Figure of the validation split that selects an epoch: the greatest "accuracy", or the least "loss".
    chosen_by: ClassVar[str] = "accuracy"

    @property
    def units(self) -> Units:
        """Names of what the problem counts."""
        return units_of(self.name, self.tokens)

    @abc.abstractmethod
    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """The shape of an example's content in memory, uint8."""

    @abc.abstractmethod
    def task(self, manifest: Mapping) -> Task:
        """Shapes and ranges for a model of these records."""

    @abc.abstractmethod
    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Inputs uint8 (batch, *input_shape) and labels int32 (batch, *label_shape), as NumPy if columns are."""

    @abc.abstractmethod
    def check(self, settings: TrainSettings) -> None:
        """Refuse settings of [Train] for another problem.

        Raises:
            SettingsError: names the setting.
        """

    @property
    @abc.abstractmethod
    def evaluation(self) -> ModuleType:
        """The module that evaluates a compiled model. It imports Keras, so it is imported when it is used.

        - predict(model, stream, test_time_augmentation): predictions for a split, in its stored order.
        - figures(model, predictions): their mean ``loss`` and ``accuracy``.
        - quick_figures(model, stream): the same for an epoch whose predictions are not used further.
        - evaluate(predictions, *, model, settings, streams, manifest, folder): writes evaluation.json of the test split
          into the run's folder and returns a ``Shown``. ``streams`` are "train" and "test".
        """
