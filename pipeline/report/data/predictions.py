"""Predictions of the test examples of a classifier, and the label errors that they suggest.

Label errors are suspected by confident learning (Northcutt, Jiang and Chuang 2021, arXiv 1911.00068).
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv

from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import PREDICTIONS_NAME
from pipeline.runs.validation import message

if TYPE_CHECKING:
    from pipeline.report.sections.labels import LabelEvaluation


@dataclass(frozen=True)
class Predictions:
    """Predictions of the test examples, in stored order.

    ``labels``, ``predicted`` and ``second`` are indices of labels, int32 (examples,). The probabilities of the
    predicted, the second and the actual label are float64 (examples,).
    """

    keys: list[str]
    labels: np.ndarray
    predicted: np.ndarray
    second: np.ndarray
    probability: np.ndarray
    second_probability: np.ndarray
    label_probability: np.ndarray


def read_predictions(folder: Path, facts: "LabelEvaluation") -> Predictions | None:
    """Read the predictions of a run, None if an earlier version wrote it. Raises DamagedArtifactError."""
    path, shares = folder / PREDICTIONS_NAME, ("probability", "second_probability", "label_probability")
    if not path.exists():
        return None
    types = dict.fromkeys(("key", "label", "predicted", "second"), pa.string()) | dict.fromkeys(shares, pa.float64())
    try:
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=[*types]),
        )
    except (OSError, pa.ArrowException) as error:
        raise DamagedArtifactError(message(path, f"expected a table of predictions: {error}")) from error
    if table.num_rows != facts.num_examples:
        raise DamagedArtifactError(message(path, f"expected {facts.num_examples} rows, found {table.num_rows}"))
    names = pa.array(facts.label_names)
    labels = [pyarrow.compute.index_in(table[name], names) for name in ("label", "predicted", "second")]
    probabilities = [table[name].to_numpy() for name in shares]
    # A comparison with NaN is false.
    if any(each.null_count for each in labels) or not all(((p >= 0) & (p <= 1)).all() for p in probabilities):
        raise DamagedArtifactError(message(path, "expected labels of evaluation.json and probabilities from 0 to 1"))
    return Predictions(table["key"].to_pylist(), *(each.to_numpy() for each in labels), *probabilities)


def suspected_label_errors(
    labels: np.ndarray,
    predicted: np.ndarray,
    probability: np.ndarray,
    label_probability: np.ndarray,
    conflicts: Collection[int] = (),
) -> np.ndarray:
    """Return the indices of examples whose label may be wrong, int64 (suspects,).

    A label is suspect if the prediction is another label, and at least as probable as that label is on average on the
    examples that have it. The order is by the difference of the probabilities of the two labels, largest first.

    Args:
        labels: Labels of the examples, int (examples,).
        predicted: Most probable labels, int (examples,).
        probability: Probabilities of ``predicted``, float (examples,) from 0 to 1.
        label_probability: Probabilities of ``labels``, float (examples,) from 0 to 1.
        conflicts: Indices of examples that are suspect in any case, and come first.
    """
    counts = np.bincount(labels, minlength=predicted.max(initial=0) + 1)
    sums = np.bincount(labels, label_probability, minlength=len(counts))
    # A label without examples has no threshold. The mean of equal probabilities may be greater than each of them.
    thresholds = np.divide(sums, counts, out=np.full(len(counts), np.inf), where=counts > 0) - 1e-6
    is_conflict = np.isin(np.arange(len(labels)), [*conflicts])
    suspects = np.flatnonzero(is_conflict | ((predicted != labels) & (probability >= thresholds[predicted])))
    margin = probability[suspects] - label_probability[suspects]
    return suspects[np.lexsort((-margin, ~is_conflict[suspects]))]
