"""Predictions: what evaluation.py left of a run, by a schema of its own.

As untrusted as the rest of a run's folder. Runs made before there was an evaluation have none.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, model_validator

from pipeline.problems.units import NEXT_TOKEN
from pipeline.report.facts.surprises import TextEvaluation
from pipeline.runs.metrics import EVALUATION_NAME
from pipeline.runs.untrusted import Count, Figure, Untrusted, checked, read_text

# More than any image-classification dataset has; the matrix of as many would not fit in memory.
_MOST_LABELS = 10_000


def _few_enough(names: list[str]) -> list[str]:
    if not 1 <= len(names) <= _MOST_LABELS:
        raise ValueError(f"expected 1 to {_MOST_LABELS} names")
    return names


class _Label(Untrusted):
    examples: Count
    precision: Figure
    recall: Figure
    f1: Figure


class _Bin(Untrusted):
    low: Figure
    high: Figure
    examples: Count
    confidence: Figure
    accuracy: Figure


class _Shown(Untrusted):
    index: Count
    label: Count


class _Mistake(_Shown):
    predicted: Count
    confidence: Figure


class _Example(_Shown):
    # Earlier versions did not say.
    predicted: Count | None = None


class _Augmented(_Shown):
    epoch: Count


class _Tiles(Untrusted):
    per_row: Count
    height: Count
    width: Count


class _WithoutDuplicates(Untrusted):
    num_examples: Count
    accuracy: Figure


class _Evaluation(Untrusted):
    label_names: Annotated[list[str], AfterValidator(_few_enough)]
    label_counts: dict[str, dict[str, Count]]
    num_examples: Count
    accuracy: Figure
    confusion_matrix: list[list[Count]]
    classes: list[_Label]
    calibration: list[_Bin]
    expected_calibration_error: Figure
    data_warnings: list[tuple[str, str]] = []
    without_duplicates: _WithoutDuplicates | None = None
    mistakes: list[_Mistake]
    examples: list[_Example]
    # Earlier versions augmented nothing.
    augmented: list[_Augmented] = []
    tiles: _Tiles

    @model_validator(mode="after")
    def _is_about_its_labels(self) -> "_Evaluation":
        count = len(self.label_names)
        if len(self.classes) != count or [len(row) for row in self.confusion_matrix] != [count] * count:
            raise ValueError(f'"confusion_matrix" and "classes": expected counts for each of {count} labels')
        shown = (*self.mistakes, *self.examples, *self.augmented)
        given = [one.predicted for one in (*self.mistakes, *self.examples) if one.predicted is not None]
        labels = [*(one.label for one in shown), *given]
        if any(label >= count for label in labels):
            raise ValueError(
                f'"mistakes", "examples" and "augmented": expected labels below {count}, found {max(labels)}'
            )
        return self


_SCHEMAS = {NEXT_TOKEN: TextEvaluation}


def read_evaluation(folder: Path, problem: str) -> dict[str, Any] | None:
    """The facts in the evaluation.json of a run of this problem; None where it has none.

    Raises:
        DamagedArtefactError: it is not JSON, or a field is missing or not of its type; names file and field.
    """
    path = folder / EVALUATION_NAME
    if not path.exists():
        return None
    return checked(_SCHEMAS.get(problem, _Evaluation), read_text(path), path).model_dump()


def worst_confusions(facts: Mapping[str, Any], limit: int) -> Sequence[tuple[int, int, int]]:
    """The pairs of labels most often taken for each other: (true, predicted, examples), the most frequent first."""
    pairs = [
        (true, given, count)
        for true, row in enumerate(facts["confusion_matrix"])
        for given, count in enumerate(row)
        if count and given != true
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))[:limit]
