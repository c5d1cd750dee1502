"""Problems of predicting several labels of an image, or numbers. The loss is the mean over the vector of an image."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pipeline.errors import refuse
from pipeline.problems.image_classification import ImageClassification
from pipeline.records.features import LABELS, VALUES, Task
from pipeline.settings.training import TrainSettings

if TYPE_CHECKING:
    import numpy as np


class _ImageValues(ImageClassification):
    chosen_by = "loss"
    has_classes = False
    evaluated_by = "pipeline.problems.image_values.evaluation:evaluate"

    def check(self, settings: TrainSettings) -> None:
        """Refuse settings for one label per image too."""
        super().check(settings)
        if "mixup" in settings.augment:
            refuse("Train", "augment", "no mixup, which needs one label per image", settings.augment)
        if settings.label_smoothing > 0:
            refuse("Train", "label_smoothing", "0 without one label per image", settings.label_smoothing)


class MultiLabel(_ImageValues):
    """The model assigns an independent probability to each label. Labels are uint8 (batch, labels), 0 or 1."""

    name = "multi_label"

    def task(self, manifest: Mapping) -> Task:
        """Return the task with a probability per label."""
        return Task(self.content_shape(manifest), 256, (), len(manifest["label_names"]), LABELS)

    def loss(self, outputs: str, label_smoothing: float) -> Callable:
        """Return the binary crossentropy, as the mean over the labels."""
        import keras

        return lambda labels, outputs: keras.losses.binary_crossentropy(keras.ops.cast(labels, "float32"), outputs)

    def metrics(self) -> list:
        """Return the share of right decisions at a probability of one half."""
        import keras

        return [keras.metrics.BinaryAccuracy(name="accuracy")]

    def linear_targets(self, labels: "np.ndarray", num_outputs: int) -> tuple["np.ndarray", str]:
        """Return the labels as numbers."""
        return labels.astype("float32"), "sigmoid"

    def answers(self, outputs: "np.ndarray") -> "np.ndarray":
        """Return 1 for the labels with a probability above one half, uint8 (batch, labels)."""
        return (outputs > 0.5).astype("uint8")


class Regression(_ImageValues):
    """The model predicts numbers in their units, float32 (batch, values).

    Losses are squared errors in standard deviations of the train split, whose mean has a loss of about 1.
    """

    name = "regression"

    def __init__(self, tokens: str = "", means: tuple[float, ...] = (0.0,), deviations: tuple[float, ...] = (1.0,)):
        """Set mean and standard deviation of each value in the train split."""
        super().__init__(tokens)
        self._means, self._deviations = means, deviations

    @classmethod
    def of_records(cls, manifest: Mapping) -> "Regression":
        """Return the problem with the statistics of the train split."""
        # A value without differences has no deviation.
        return cls("", tuple(manifest["means"]), tuple(each or 1.0 for each in manifest["deviations"]))

    def task(self, manifest: Mapping) -> Task:
        """Return the task with numbers as outputs."""
        shape, count = self.content_shape(manifest), len(manifest["label_names"])
        return Task(shape, 256, (), count, VALUES, self._means, self._deviations)

    def loss(self, outputs: str, label_smoothing: float) -> Callable:
        """Return the mean squared error in standard deviations."""
        import keras

        def squared_error(labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
            errors = (keras.ops.cast(labels, "float32") - outputs) / keras.ops.array(self._deviations, "float32")
            return keras.ops.mean(keras.ops.square(errors), axis=-1)

        return squared_error

    def metrics(self) -> list:
        """Return none. Numbers have no accuracy."""
        return []

    def linear_targets(self, labels: "np.ndarray", num_outputs: int) -> tuple["np.ndarray", str]:
        """Return the labels in standard deviations from their mean."""
        return ((labels - self._means) / self._deviations).astype("float32"), "identity"

    def answers(self, outputs: "np.ndarray") -> "np.ndarray":
        """Return the outputs in standard deviations from the mean."""
        return (outputs - self._means) / self._deviations
