"""Problem: what is asked of a thing that can be learned (the problems' protocol; light).

A problem holds nothing and can be asked at any time. ``columns`` are those of a batch of records, by feature, without
their keys; ``manifest`` is that of the records.
"""

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pipeline.config.training import TrainSettings
from pipeline.problems.units import Units, units_of

if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf


@dataclass(frozen=True)
class Task:
    """What a network is to do.

    Attributes:
        input_shape: of one example, uint8.
        inputs: the inputs are numbers below this.
        label_shape: of one example's labels, int32; () for one label.
        num_labels: the labels are numbers below this.
        examples: what the inputs are, in one word.
    """

    input_shape: tuple[int, ...]
    inputs: int
    label_shape: tuple[int, ...]
    num_labels: int
    examples: str

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of one example's outputs: a figure for each label of each prediction."""
        return (*self.label_shape, self.num_labels)

    @property
    def predictions_per_example(self) -> int:
        """How many labels an example has."""
        return math.prod(self.label_shape)


@dataclass(frozen=True)
class Shown:
    """What evaluation.json says, and what TensorBoard is to show of it: ``text`` by name, and ``images``."""

    facts: dict
    text: Mapping[str, str]
    images: Mapping[str, "np.ndarray"]


class Stream(Protocol):
    """What a problem asks of an input stream, which itself asks the problem what to give."""

    split: Any
    augmentation: Any

    def evaluation(self) -> "tf.data.Dataset":
        """One pass over the split in its stored order, to the last example."""


class Problem(abc.ABC):
    """One thing that can be learned."""

    #: As records and runs name it.
    name: ClassVar[str]
    #: Features of the records that the stream reads, the first of which is what is learned from.
    columns: ClassVar[tuple[str, ...]]
    #: Whether [Train] augment has anything to change.
    can_augment: ClassVar[bool] = False
    #: units.BYTES of a text that is predicted byte by byte.
    tokens: str = ""
    #: By which figure of the validation split an epoch is chosen: the greatest "accuracy", or the least "loss".
    chosen_by: ClassVar[str] = "accuracy"

    @property
    def units(self) -> Units:
        """What it counts."""
        return units_of(self.name, self.tokens)

    @abc.abstractmethod
    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """The shape of an example's content, uint8, as it lies in memory."""

    @abc.abstractmethod
    def task(self, manifest: Mapping) -> Task:
        """What a network of these records is to do."""

    @abc.abstractmethod
    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Inputs uint8 (batch, *input_shape) and labels int32 (batch, *label_shape) of a batch of records.

        NumPy arrays where the columns are.
        """

    @abc.abstractmethod
    def check(self, settings: TrainSettings) -> None:
        """Refuse settings of [Train] that are made for another problem.

        Raises:
            SettingsError: names the setting.
        """

    @abc.abstractmethod
    def predict(self, model: "keras.Model", held_out: Stream, test_time_augmentation: str = "none") -> Any:
        """What a compiled network says of a split, by its input stream, in its stored order.

        ``test_time_augmentation``: as [Train] has it; ``check`` refuses what a problem has no views for.
        """

    @abc.abstractmethod
    def figures(self, model: "keras.Model", predictions: Any) -> dict[str, float]:
        """The mean ``loss`` and the ``accuracy`` of predictions."""

    @abc.abstractmethod
    def quick_figures(self, model: "keras.Model", held_out: Stream) -> dict[str, float]:
        """The same of an epoch of which no more is wanted."""

    @abc.abstractmethod
    def evaluate(
        self,
        predictions: Any,
        *,
        model: "keras.Model",
        settings: TrainSettings,
        streams: Mapping[str, Stream],
        manifest: Mapping,
        folder: Path,
    ) -> Shown:
        """Look closely at the predictions for the test split, and leave evaluation.json in the run's folder.

        ``streams``: of the splits "train" and "test".
        """
