"""Ranking, report and predictions for next-token prediction."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
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
