"""Ranking, report and predictions for image classification."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
    ranking=Ranking("test_accuracy", predictions_per_draw=1),
    has_accuracy_goals=True,
    hub_task="image-classification",
    evaluation_title="Errors",
    evaluation_schema="pipeline.report.data.labels:ImageEvaluation",
    predictions="pipeline.report.data.labels:read_predictions",
    answers="pipeline.report.data.labels:read_answers",
    pictures="pipeline.report.data.pictures:read_pictures",
    evaluation_blocks="pipeline.report.sections.labels:evaluation_blocks",
    data_blocks="pipeline.report.sections.labels:data_blocks",
    card="pipeline.report.sections.labels:card",
    card_templates="images",
    prediction_rows="pipeline.predict.rows:image_rows",
    watched="pipeline.predict.watch:label_bins",
)
