"""Rows of predictions with several labels per image, or with numbers."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.predict import Job
from pipeline.predict.rows import batches_of, columns_of
from pipeline.problems.problem import EVALUATION_NAME
from pipeline.runs.load_model import LoadedModel


def label_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the labels above their thresholds, separated by semicolons, and the probability of each label."""
    facts = json.loads((Path(job.run) / EVALUATION_NAME).read_text(encoding="utf-8"))
    thresholds, names = np.array([one["threshold"] for one in facts["labels"]]), np.array(job.label_names)
    for batch, probabilities, errors in batches_of(paths, job, model):
        chosen = ["; ".join(names[row]) for row in probabilities >= thresholds]
        shares = columns_of([f"probability of {name}" for name in names], probabilities, errors)
        labels = pa.array(chosen, pa.string(), mask=errors.is_valid().to_numpy(zero_copy_only=False))
        yield pa.RecordBatch.from_pydict({"path": batch, "labels": labels, "error": errors, **shares})


def value_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the predicted numbers of each image."""
    for batch, values, errors in batches_of(paths, job, model):
        columns = columns_of(job.label_names, values, errors)
        yield pa.RecordBatch.from_pydict({"path": batch, **columns, "error": errors})
