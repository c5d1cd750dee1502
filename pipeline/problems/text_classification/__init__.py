"""Text classification, the problem of predicting the label of a text. A model gets its first bytes in UTF-8."""

from pipeline.problems.problem import CONTENT, TARGET, Problem, Units
from pipeline.records.features import LABEL, TEXT


class TextClassification(Problem):
    """The model assigns a probability per label to each text. Shorter texts end with zeros."""

    name = "text_classification"
    features = {TEXT: CONTENT, LABEL: TARGET}
    models = ("byte_cnn",)
    has_classes = True
    evaluated_by = "pipeline.problems.text_classification.evaluation:evaluate"
    units = Units("text", "texts", "texts")
