"""Text classification, the problem of predicting the label of a text. A model gets its first bytes in UTF-8."""

from collections.abc import Mapping

from pipeline.problems.problem import CONTENT, TARGET, Problem
from pipeline.problems.units import Units
from pipeline.records.features import LABEL, TEXT, Task


class TextClassification(Problem):
    """The model assigns a probability per label to each text."""

    name = "text_classification"
    features = {TEXT: CONTENT, LABEL: TARGET}
    models = ("byte_cnn",)
    has_classes = True
    evaluated_by = "pipeline.problems.text_classification.evaluation:evaluate"
    units = Units("text", "texts", "texts")

    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """Return the number of bytes of an example. Shorter texts end with zeros."""
        return tuple(manifest["feature_spec"][TEXT]["shape"])

    def task(self, manifest: Mapping) -> Task:
        """Return the task with one label per text."""
        return Task(self.content_shape(manifest), 256, (), len(manifest["label_names"]))
