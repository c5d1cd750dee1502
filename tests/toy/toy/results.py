"""How runs of the sum are ranked and shown, and a section of the report."""

from pipeline.problems.results import Ranking, Results

RESULTS = Results(
    ranking=Ranking("val_loss", greater_is_better=False, predictions_per_draw=1),
    loss_unit="squared",
    evaluation_schema="toy.report:Evaluation",
    evaluation_blocks="toy.report:blocks",
    prediction_rows="toy.predictions:rows_of",
)


def section(report):
    from pipeline.report.blocks import Section, Text

    yield Section("toy", "A toy section", [Text(f"{len(report.runs)} runs of the toy")])
