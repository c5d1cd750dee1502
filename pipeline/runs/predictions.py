"""Thresholds and predictions of a run for the test split, from the files of its evaluation."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import EVALUATION_NAME
from pipeline.runs.validation import Untrusted, checked, message, read_text


class _Label(Untrusted):
    threshold: float


class _Evaluation(Untrusted):
    labels: list[_Label] = []


def read_thresholds(run: Path) -> list[float]:
    """Return the threshold of each of several labels, in order, or [] for another problem."""
    path = run / EVALUATION_NAME
    return [label.threshold for label in checked(_Evaluation, read_text(path), path).labels]


def read_table(path: Path, types: Mapping[str, pa.DataType], num_rows: int | None = None) -> pa.Table:
    """Read these columns of a table of predictions. DamagedArtifactError: it is invalid, or has other rows."""
    try:
        table = pyarrow.csv.read_csv(
            path,
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types, include_columns=[*types]),
        )
    except (OSError, pa.ArrowException) as error:
        raise DamagedArtifactError(message(path, f"expected a table of predictions: {error}")) from error
    if num_rows not in (None, table.num_rows):
        raise DamagedArtifactError(message(path, f"expected {num_rows} rows, found {table.num_rows}"))
    return table
