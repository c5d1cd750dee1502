"""Find: the problem that records pose (the problems' aid)."""

from collections.abc import Container, Mapping

from pipeline.problems.image_classification import ImageClassification
from pipeline.problems.next_token import NextToken
from pipeline.problems.problem import Problem
from pipeline.records.features import TOKENS


def problem_of(features: Container[str]) -> Problem:
    """The problem of examples with these features."""
    return NextToken() if TOKENS in features else ImageClassification()


def problem_of_records(manifest: Mapping) -> Problem:
    """The problem of the records that a manifest describes."""
    return problem_of(manifest.get("feature_spec", ()))
