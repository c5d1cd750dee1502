"""Ranking, report and predictions for several labels of an image, and for numbers."""

from pipeline.problems.results import Ranking, Results

_SECTION = "pipeline.report.sections.image_values"
_COMMON = {
    "ranking": Ranking("test_loss", predictions_per_draw=1),
    "evaluation_title": "Errors",
    "pictures": f"{_SECTION}:read_worst",
    "answers": f"{_SECTION}:read_answers",
    "data_blocks": f"{_SECTION}:data_blocks",
    "tiles": f"{_SECTION}:scores",
    "scores": f"{_SECTION}:scores",
    "card": f"{_SECTION}:card",
    "card_templates": "images",
    "watched": "pipeline.predict.watch:value_bins",
}
MULTI_LABEL = Results(
    **_COMMON,
    accuracy_name="accuracy per label",
    hub_task="image-classification",
    evaluation_schema=f"{_SECTION}:LabelsEvaluation",
    evaluation_blocks=f"{_SECTION}:label_blocks",
    prediction_rows="pipeline.predict.rows:label_rows",
)
REGRESSION = Results(
    **_COMMON,
    has_accuracy=False,
    loss_unit="σ²",
    hub_task="other",
    evaluation_schema=f"{_SECTION}:ValuesEvaluation",
    evaluation_blocks=f"{_SECTION}:value_blocks",
    prediction_rows="pipeline.predict.rows:value_rows",
)
