"""Ranking, report and predictions for text classification."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
    ranking=Ranking("test_accuracy", predictions_per_draw=1),
    hub_task="text-classification",
    evaluation_title="Errors",
    evaluation_schema="pipeline.report.data.labels:LabeledTextEvaluation",
    predictions="pipeline.report.data.labels:read_predictions",
    answers="pipeline.report.data.labels:read_answers",
    evaluation_blocks="pipeline.report.sections.labels:evaluation_blocks",
    data_blocks="pipeline.report.sections.labels:data_blocks",
    card="pipeline.report.sections.labels:card",
    card_templates="labeled-texts",
    prediction_rows="pipeline.predict.rows:labeled_text_rows",
    watched="pipeline.predict.watch:label_bins",
)
