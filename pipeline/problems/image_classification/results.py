"""How runs of image classification are ranked, shown and applied."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
    ranking=Ranking("val_accuracy", greater_is_better=True, predictions_per_draw=1),
    hub_task="image-classification",
    prediction_rows="pipeline.predict.images:rows_of",
)
