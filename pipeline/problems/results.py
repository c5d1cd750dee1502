"""What follows the training of a problem: how its runs are ranked, shown and applied. Standard library alone.

Training does not import this module, so another ranking or another text of the report makes no run stale.
"""

import math
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.registry import Registry

#: What runs may be ranked by: metrics of the test split, by their names in a record.
METRICS = ("test_accuracy", "test_loss")
#: Endings of the names of the templates of the cards, such as model-card-images.md.j2. Empty: those for any problem.
CARD_TEMPLATES = ("", "images", "texts")


@dataclass(frozen=True)
class Ranking:
    """``metric``: "test_accuracy" or "test_loss". ``predictions_per_draw``: that count as one independent prediction.

    The characters of a text depend on each other. On Tiny Shakespeare, the sampling error of the accuracy is 1.3 to 2.1
    times that of independent characters. Where a standard error must be assumed, five characters count as one.
    """

    metric: str
    greater_is_better: bool
    predictions_per_draw: int

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"Ranking.metric: expected {' or '.join(METRICS)}, got {self.metric!r}")


# Nothing is known about a record of another version, so the assumption is as cautious as for a text.
_UNKNOWN = Ranking("test_accuracy", True, 5)


@dataclass(frozen=True)
class Results:
    """How the runs of a problem are ranked, shown and applied.

    The fields from ``evaluation_schema`` on, but ``card_templates``, are names ``module:object``, which ``hook``
    imports. An empty name means that the problem has no such thing. The run of ``tiles`` and ``card`` may have no
    evaluation.
    """

    ranking: Ranking = _UNKNOWN
    #: The unit of a loss that is shown beside the accuracy, such as "nats". Empty: only the accuracy is shown.
    loss_unit: str = ""
    #: Whether the report states what training to an accuracy of 90, 92 and 94 % took, the goals for CIFAR-10.
    has_accuracy_goals: bool = False
    #: The Hugging Face Hub's name of the problem.
    hub_task: str = "other"
    #: The pydantic model of evaluation.json, a class of ``runs.validation.Untrusted``.
    evaluation_schema: str = ""
    #: (folder of the run, evaluation) → kind of pictures → PNGs in base64.
    pictures: str = ""
    #: (report, run, name of the run) → blocks of the run's evaluation.
    evaluation_blocks: str = ""
    #: run → (title, value) of metrics that are shown before the test accuracy.
    tiles: str = ""
    #: run → values of the templates of the cards: ``labels``; ``counts``, (split, examples, predictions),
    #: and ``has_predicted`` if the last is shown; ``rows``, (metric, value); ``confusions``.
    card: str = ""
    #: One of ``CARD_TEMPLATES``.
    card_templates: str = ""
    #: (paths, predict.Job, runs.load_model.LoadedModel) → pyarrow record batches, a row per file, for ``predict``.
    prediction_rows: str = ""

    def __post_init__(self) -> None:
        if self.card_templates not in CARD_TEMPLATES:
            expected = ", ".join(map(repr, CARD_TEMPLATES))
            raise ValueError(f"Results.card_templates: expected one of {expected}, got {self.card_templates!r}")

    def hook(self, field: str) -> Any:
        """What a field names. None if it is empty."""
        name = getattr(self, field)
        return pkgutil.resolve_name(name) if name else None


#: The name of a problem → its ``Results``.
RESULTS = Registry(
    "results",
    {
        "image_classification": "pipeline.problems.image_classification.results:RESULTS",
        "next_token": "pipeline.problems.next_token.results:RESULTS",
    },
)


def results_of(problem: str) -> Results:
    """What follows the training of a problem by its name, cautious defaults for an unknown one."""
    return RESULTS.load(problem) if problem in RESULTS else Results()


def merit(problem: str, metrics: Mapping[str, float | None]) -> float:
    """A number that is greater for a better run, −∞ if its metric is not known. Compare runs of one problem only.

    ``metrics``: of the test split, by their names in a record.
    """
    ranking = results_of(problem).ranking
    value = metrics[ranking.metric]
    if value is None or math.isnan(value):
        return -math.inf
    return value if ranking.greater_is_better else -value
