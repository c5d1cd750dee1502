"""How runs of the sum are ranked and shown."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
    ranking=Ranking("test_loss", predictions_per_draw=1),
    loss_unit="squared",
    evaluation_schema="toy.report:Evaluation",
    evaluation_blocks="toy.report:blocks",
    prediction_rows="toy.predictions:rows_of",
)
