"""The protocol of learning problems. Importing it needs no numerical library.

``columns`` are those of a batch of records, by feature, without their keys; ``manifest`` is that of the records.
"""

import abc
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pipeline.problems import PROBLEMS, problem_of_records
from pipeline.problems.units import NEUTRAL, Units
from pipeline.records.features import Task
from pipeline.settings.setting_error import refuse
from pipeline.settings.training import TrainSettings

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from pipeline.streams.numpy_stream import Split

#: Files of an evaluation in a run's folder. The last three are sheets of pictures.
EVALUATION_NAME = "evaluation.json"
MISTAKES_NAME, EXAMPLES_NAME, AUGMENTED_NAME = "mistakes.png", "examples.png", "augmented.png"
#: Roles of the features of records. The content is what the model gets, or what inputs and targets are cut from.
CONTENT, TARGET = "content", "target"


@dataclass(frozen=True)
class EvaluationSummary:
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


@dataclass(frozen=True)
class EvaluatedRun:
    """What an evaluation may use. ``manifest`` is that of the records, and ``folder`` that of the run."""

    model: Any
    settings: TrainSettings
    train: Stream
    test: Stream
    manifest: Mapping
    folder: Path

    def write(self, facts: dict) -> None:
        """Write evaluation.json."""
        (self.folder / EVALUATION_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def examples_at(stream: Stream, places: Sequence[int]) -> list[tuple["np.ndarray", "np.ndarray"]]:
    """Inputs and labels of the examples at these places of the stored order, in one pass."""
    found, start = {}, 0
    for inputs, labels in stream.evaluation().as_numpy_iterator():
        here = [place for place in places if start <= place < start + len(inputs)]
        found |= {place: (inputs[place - start], labels[place - start]) for place in here}
        start += len(inputs)
    return [found[place] for place in places]


def open_split(folder: Path, manifest: Mapping, name: str) -> "Split":
    """One split of the records in ``folder``, with the inputs and labels of their problem, see ``Split``."""
    from pipeline.streams.numpy_stream import Split

    problem = problem_of_records(manifest)
    return Split.of_manifest(
        folder,
        manifest,
        name,
        features=tuple(problem.features),
        decode=problem.examples,
        content_shape=problem.content_shape(manifest),
        predictions_per_example=problem.task(manifest).predictions_per_example,
    )


class Problem(abc.ABC):
    """A learning problem: inputs, targets, metrics and evaluation. What follows training is in ``results.py``."""

    #: Name in records and runs, a key of ``PROBLEMS``.
    name: ClassVar[str]
    #: Features of the records that the stream reads → their roles, the content first.
    features: ClassVar[Mapping[str, str]]
    #: Models of the pipeline that are made for this problem alone.
    models: ClassVar[tuple[str, ...]] = ()
    #: Whether [Train] augment and test_time_augmentation apply.
    can_augment: ClassVar[bool] = False
    #: Metric of the validation split that selects an epoch: the greatest "accuracy", or the least "loss".
    chosen_by: ClassVar[str] = "accuracy"

    def __init__(self, tokens: str = "") -> None:
        """``tokens``: units.BYTES for a text that is predicted byte by byte, as in a run's record."""
        self.tokens = tokens

    @classmethod
    def of_records(cls, manifest: Mapping) -> "Problem":
        """The problem of records."""
        return cls()

    @property
    def units(self) -> Units:
        """Names of what the problem counts."""
        return NEUTRAL

    @abc.abstractmethod
    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """The shape of an example's content in memory, uint8."""

    @abc.abstractmethod
    def task(self, manifest: Mapping) -> Task:
        """Shapes and ranges for a model of these records."""

    @abc.abstractmethod
    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Inputs uint8 (batch, *input_shape) and labels int32 (batch, *label_shape), as NumPy if columns are."""

    def check(self, settings: TrainSettings) -> None:
        """Refuse settings of [Train] for another problem by a SettingsError."""
        others = [PROBLEMS.load(name) for name in PROBLEMS.builtin if name != self.name]
        if any(settings.model in other.models for other in others):
            refuse("Train", "model", f"a network for {self.units.files}, as the records are", settings.model)
        if self.can_augment:
            return
        if settings.augment:
            refuse("Train", "augment", f"nothing, as the records are {self.units.files}", settings.augment)
        if (views := settings.test_time_augmentation) != "none":
            refuse("Train", "test_time_augmentation", f"none, as the records are {self.units.files}", views)

    def loss(self, outputs: str, label_smoothing: float) -> Callable:
        """(labels, outputs of the model) → float32 loss of each prediction. ``outputs``: see ``kind_of_outputs``."""
        from pipeline.models.model import Crossentropy

        return Crossentropy(outputs, label_smoothing)

    def metrics(self) -> list:
        """The metrics of training for Keras, of which one is called "accuracy"."""
        return ["accuracy"]

    def answers(self, outputs: "np.ndarray") -> "np.ndarray":
        """Outputs of a model (batch, …) → what it answers, as the labels are."""
        return outputs.argmax(axis=-1)

    @property
    @abc.abstractmethod
    def evaluation(self) -> ModuleType:
        """The module that evaluates a compiled model. It imports Keras, so it is imported when it is used.

        - predict(model, stream, test_time_augmentation): predictions for a split, in its stored order.
        - figures(model, predictions): their mean ``loss`` and ``accuracy``.
        - quick_figures(model, stream): the same for an epoch whose predictions are not used further.
        - evaluate(predictions, run): writes evaluation.json of the test split of an ``EvaluatedRun``; a ``Shown``.
        """
