"""The evaluation in the report."""

from pipeline.report.blocks import Text
from pipeline.runs.validation import Count, Number, Untrusted


class Evaluation(Untrusted):
    num_examples: Count
    mean_error: Number
    worst_error: Number


def blocks(report, run, name):
    facts = run.evaluation
    return [Text(f"Sums of {facts.num_examples} pairs, off by {facts.mean_error:.3f} on average")]
