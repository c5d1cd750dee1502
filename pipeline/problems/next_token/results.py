"""How runs of next-token prediction are ranked, shown and applied."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
    ranking=Ranking("val_loss", greater_is_better=False, predictions_per_draw=5),
    loss_unit="nats",
    hub_task="text-generation",
    prediction_rows="pipeline.predict.texts:rows_of",
)
