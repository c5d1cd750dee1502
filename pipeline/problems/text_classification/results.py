"""Ranking, report and predictions for text classification."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
    ranking=Ranking("test_accuracy", greater_is_better=True, predictions_per_draw=1),
    hub_task="text-classification",
    evaluation_title="Errors",
    evaluation_schema="pipeline.report.sections.labeled_texts:LabeledTextEvaluation",
    predictions="pipeline.report.data.predictions:read_predictions",
    evaluation_blocks="pipeline.report.sections.labels:evaluation_blocks",
    data_blocks="pipeline.report.sections.labeled_texts:data_blocks",
    card="pipeline.report.sections.labels:card",
    card_templates="labeled-texts",
    prediction_rows="pipeline.predict.rows:labeled_text_rows",
)
