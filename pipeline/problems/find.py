"""The problem of records, by their features."""

from collections.abc import Container, Mapping, Sequence

from pipeline.problems import units
from pipeline.problems.image_classification import ImageClassification
from pipeline.problems.next_token import NextToken
from pipeline.problems.problem import Problem
from pipeline.records.features import TOKENS


def problem_of(features: Container[str], label_names: Sequence[str] = ()) -> Problem:
    """The problem of examples with these features and, if known, these label names."""
    if TOKENS not in features:
        return ImageClassification()
    # NumPy, which Luigi's process does not import.
    from pipeline.records.vocabulary import Vocabulary

    return NextToken(units.BYTES if Vocabulary(tuple(label_names)).is_bytes else "")


def problem_of_records(manifest: Mapping) -> Problem:
    """The problem of the records that a manifest describes."""
    return problem_of(manifest.get("feature_spec", ()), manifest.get("label_names", ()))
