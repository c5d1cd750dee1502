"""Rows of the command ``predict``."""

from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image


def rows_of(paths, job, network):
    rows = []
    for path in paths:
        image = np.asarray(Image.open(Path(job.files) / path))[..., None]
        rows.append({"path": path, "sum": float(network.probabilities(image[None])[0, 0]), "error": None})
    yield pa.RecordBatch.from_pylist(rows, pa.schema({"path": pa.string(), "sum": pa.float32(), "error": pa.string()}))
