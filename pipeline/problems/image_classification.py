"""Image classification: the problem of predicting the label of an image."""

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from pipeline.config.refusal import refuse
from pipeline.config.training import TEXT_MODELS, TrainSettings
from pipeline.problems.problem import Problem, Task
from pipeline.problems.units import IMAGE_CLASSIFICATION
from pipeline.records.features import IMAGE, LABEL

if TYPE_CHECKING:
    import tensorflow as tf


class ImageClassification(Problem):
    """The model gives each image a probability for each label."""

    name = IMAGE_CLASSIFICATION
    columns = (IMAGE, LABEL)
    can_augment = True

    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """Height, width and channels."""
        return tuple(manifest["image"]["shape"])

    def task(self, manifest: Mapping) -> Task:
        """One label for each image."""
        return Task(self.content_shape(manifest), 256, (), len(manifest["label_names"]))

    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """As stored in the records."""
        return columns[IMAGE], columns[LABEL]

    def check(self, settings: TrainSettings) -> None:
        """Refuse a network for texts."""
        if settings.model in TEXT_MODELS:
            refuse("Train", "model", "a network for images, as the records are", settings.model)

    @property
    def evaluation(self) -> ModuleType:
        """See image_evaluation.py."""
        from pipeline.problems import image_evaluation

        return image_evaluation
