"""Results of learning problems, which define how runs are ranked, reported and used.

The module needs only the standard library. Training does not import it, so changes make no run stale.
"""

import math
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.registry import Registry


@dataclass(frozen=True)
class Ranking:
    """Field of a record that ranks runs, "test_accuracy" or "test_loss".

    ``predictions_per_draw`` is the number of predictions that count as an independent one.
    The characters of a text depend on each other. On Tiny Shakespeare, the sampling error of the accuracy is 1.3 to 2.1
    times that of independent characters. Assumed standard errors therefore count five characters as one.
    """

    metric: str
    predictions_per_draw: int


# Records of unknown problems get the cautious assumption of a text.
_UNKNOWN = Ranking("test_accuracy", predictions_per_draw=5)


@dataclass(frozen=True)
class Results:
    """Ranking, report and predictions for the runs of a problem.

    The fields from ``evaluation_schema`` on, except ``card_templates``, are names ``module:object`` that ``hook``
    imports. An empty name means that the problem has no such function. ``tiles`` and ``card`` also get runs without an
    evaluation.
    """

    ranking: Ranking = _UNKNOWN
    #: Unit of a loss that the report shows with the accuracy, such as "nats". "" hides the loss.
    loss_unit: str = ""
    #: Whether a prediction is right or wrong. Without an accuracy, the loss ranks runs and shows changes.
    has_accuracy: bool = True
    #: Name of the accuracy of exports. For several labels, each decision about a label counts.
    accuracy_name: str = "accuracy"
    #: Whether the report shows the cost of training to 90%, 92% and 94% accuracy, the goals for CIFAR-10.
    has_accuracy_goals: bool = False
    #: Name of the problem on the Hugging Face Hub.
    hub_task: str = "other"
    #: Title of the evaluation in the report.
    evaluation_title: str = "Evaluation"
    #: Pydantic model of evaluation.json, a subclass of ``runs.validation.Untrusted``.
    evaluation_schema: str = ""
    #: (folder of the run, evaluation) → base64 PNGs by kind of pictures.
    pictures: str = ""
    #: (folder of the run, evaluation) → predictions of the test examples, None for a run without their file.
    predictions: str = ""
    #: (folder of the run, evaluation) → ``report.data.champion.Answers`` to the test examples, None without their file.
    answers: str = ""
    #: (report, run, name of the run) → blocks of the run's evaluation.
    evaluation_blocks: str = ""
    #: (report, run) → blocks about the data of a run.
    data_blocks: str = ""
    #: run → (title, value) of metrics that precede the test accuracy.
    tiles: str = ""
    #: run → (title, value) of metrics below the one that ranks it in the scoreboard.
    scores: str = ""
    #: run → template values of the cards. These are ``labels``, ``counts`` with (split, examples), ``rows`` with
    #: (metric, value), and ``confusions``.
    card: str = ""
    #: Suffix of card templates, "images", "texts" or "labeled-texts". "" selects the templates for any problem.
    card_templates: str = ""
    #: (paths, predict.Job, runs.load_model.LoadedModel) → pyarrow record batches, a row per file, for ``predict``. The
    #: terminal shows the columns before the column ``error``, which has the reason for a file without a prediction.
    prediction_rows: str = ""
    #: (folder of the run, label names) → predict.watch.BinsOf, which counts predictions. "" counts none.
    watched: str = ""

    def hook(self, field: str) -> Any:
        """Return the object that a field names, None if it is empty."""
        name = getattr(self, field)
        return pkgutil.resolve_name(name) if name else None


# The code digest finds the modules by these names.
_CLASSIFICATION = {
    "ranking": Ranking("test_accuracy", predictions_per_draw=1),
    "evaluation_title": "Errors",
    "predictions": "pipeline.report.data.labels:read_predictions",
    "answers": "pipeline.report.data.labels:read_answers",
    "evaluation_blocks": "pipeline.report.sections.labels:evaluation_blocks",
    "data_blocks": "pipeline.report.sections.labels:data_blocks",
    "card": "pipeline.report.sections.labels:card",
    "watched": "pipeline.predict.watch:label_bins",
}
IMAGES = Results(
    **_CLASSIFICATION,
    has_accuracy_goals=True,
    hub_task="image-classification",
    evaluation_schema="pipeline.report.data.labels:ImageEvaluation",
    pictures="pipeline.report.data.labels:read_pictures",
    card_templates="images",
    prediction_rows="pipeline.predict.rows:class_rows",
)
LABELED_TEXTS = Results(
    **_CLASSIFICATION,
    hub_task="text-classification",
    evaluation_schema="pipeline.report.data.labels:LabeledTextEvaluation",
    card_templates="labeled-texts",
    prediction_rows="pipeline.predict.rows:class_rows",
)
NEXT_TOKENS = Results(
    ranking=Ranking("test_loss", predictions_per_draw=5),
    loss_unit="nats",
    hub_task="text-generation",
    evaluation_schema="pipeline.report.sections.texts:TextEvaluation",
    evaluation_blocks="pipeline.report.sections.texts:evaluation_blocks",
    data_blocks="pipeline.report.sections.texts:data_blocks",
    tiles="pipeline.report.sections.texts:tiles",
    card="pipeline.report.sections.texts:card",
    card_templates="texts",
    prediction_rows="pipeline.predict.rows:text_rows",
)
_IMAGE_VALUES = {
    "ranking": Ranking("test_loss", predictions_per_draw=1),
    "evaluation_title": "Errors",
    "scores": "pipeline.report.sections.image_values:scores",
    "card": "pipeline.report.sections.image_values:card",
    "pictures": "pipeline.report.sections.image_values:read_worst",
    "answers": "pipeline.report.sections.image_values:read_answers",
    "tiles": "pipeline.report.sections.image_values:scores",
    "card_templates": "images",
    "watched": "pipeline.predict.watch:value_bins",
}
SEVERAL_LABELS = Results(
    **_IMAGE_VALUES,
    accuracy_name="accuracy per label",
    hub_task="image-classification",
    evaluation_schema="pipeline.report.sections.image_values:LabelsEvaluation",
    evaluation_blocks="pipeline.report.sections.image_values:label_blocks",
    prediction_rows="pipeline.predict.rows:label_rows",
)
NUMBERS = Results(
    **_IMAGE_VALUES,
    has_accuracy=False,
    loss_unit="σ²",
    evaluation_schema="pipeline.report.sections.image_values:ValuesEvaluation",
    evaluation_blocks="pipeline.report.sections.image_values:value_blocks",
    prediction_rows="pipeline.predict.rows:value_rows",
)
#: The name of a problem → its ``Results``.
RESULTS = Registry(
    "results",
    {
        "image_classification": "pipeline.problems.results:IMAGES",
        "text_classification": "pipeline.problems.results:LABELED_TEXTS",
        "next_token": "pipeline.problems.results:NEXT_TOKENS",
        "multi_label": "pipeline.problems.results:SEVERAL_LABELS",
        "regression": "pipeline.problems.results:NUMBERS",
    },
)


def results_of(problem: str) -> Results:
    """Return the ``Results`` of a problem by its name, with cautious defaults for an unknown name."""
    return RESULTS.load(problem) if problem in RESULTS else Results()


def merit(problem: str, metrics: Mapping[str, float | None]) -> float:
    """Return a number that is greater for a better run of the same problem, −∞ if its metric or loss is unknown.

    ``metrics`` are those of the test split, by their names in a record. A model that returns NaN has no loss, but by
    the rules of argmax it predicts the first label, which may be the most frequent one.
    """
    metric = results_of(problem).ranking.metric
    value = metrics[metric]
    if any(one is None or math.isnan(one) for one in (value, metrics["test_loss"])):
        return -math.inf
    return value if metric == "test_accuracy" else -value
