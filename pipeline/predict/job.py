"""Beam job that predicts blocks of files and joins the results. An unusable file gets a row with the reason."""

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from pyarrow import compute

from pipeline.artifacts.publish import replacing
from pipeline.errors import SettingsError
from pipeline.predict import MAX_SHOWN, Job
from pipeline.predict.rows import SIDE
from pipeline.predict.watch import Watch
from pipeline.problems.results import results_of
from pipeline.runs.load_model import load_trained
from pipeline.settings.data import RecordsSettings
from pipeline.shards.engine import running
from pipeline.sources.files import stamps

PARQUET_NAME, CSV_NAME = "predictions.parquet", "predictions.csv"
_BLOCK_FILES = 512
_load = cache(load_trained)


def predict(job: Job, inputs: Sequence[str], folder: Path, settings: RecordsSettings) -> dict[str, Any]:
    """Predict files, and all files below folders that are not hidden, and replace the predictions in ``folder``.

    Returns the number of ``files``, and the number of unusable ones as ``errors``. ``rows`` has the first rows with a
    prediction, up to the column ``error``, and ``unusable`` the first rows without. SettingsError: There is no file, a
    folder is unreadable, the problem cannot predict files, or Beam rejects the runner or a flag.
    """
    if not results_of(job.problem).prediction_rows:
        raise SettingsError(
            f"--model: expected a run of a problem that predicts files, got a run of {job.problem!r}. Install the "
            "package of this problem, or set prediction_rows in its Results."
        )
    paths = _list_files(inputs)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".parts-", dir=folder) as parts:
        job = replace(job, files=os.getcwd(), parts=parts)
        blocks = list(range(0, len(paths), _BLOCK_FILES))
        for start in blocks:
            _part(job, start, "json").write_text(json.dumps(paths[start : start + _BLOCK_FILES]), encoding="utf-8")
        with running(settings) as pipeline:
            (
                pipeline
                | "Plan blocks" >> beam.Create(blocks)  # index of the first file
                | "Spread blocks" >> beam.Reshuffle()  # index of the first file
                | "Predict blocks" >> beam.Map(predict_block, job)  # index of the first file
            )
        return _join([_part(job, start, "parquet") for start in blocks], folder, job)


def _list_files(inputs: Sequence[str]) -> list[str]:
    """Return the files, and those below the folders, each once."""

    def refuse(hint: str, expected: str) -> NoReturn:
        raise SettingsError(f"FILES: expected {expected}, got {', '.join(map(repr, inputs))}.{hint}")

    paths: list[str] = []
    for path in inputs:
        is_folder = os.path.isdir(path)
        paths += [os.path.join(path, name) for name in sorted(stamps(Path(path), refuse))] if is_folder else [path]
    if not paths:
        refuse(" They contain no file.", "files")
    return list(dict.fromkeys(paths))


def predict_block(start: int, job: Job) -> int:
    """Predict a block of files and write its result atomically."""
    paths = json.loads(_part(job, start, "json").read_text(encoding="utf-8"))
    batches = results_of(job.problem).hook("prediction_rows")(paths, job, _load(Path(job.run), model=job.model))
    with replacing(_part(job, start, "parquet")) as temporary:
        pyarrow.parquet.write_table(pa.Table.from_batches(list(batches)), temporary)
    return start


def _part(job: Job, start: int, extension: str) -> Path:
    """Return the path of the JSON list of a block's files, or of the Parquet file with its results."""
    return Path(job.parts) / f"{start:012d}.{extension}"


def _join(parts: Sequence[Path], folder: Path, job: Job) -> dict[str, Any]:
    """Join the block results into a Parquet and a CSV file, which replace the earlier ones, and count predictions."""
    found, within = {"files": 0, "errors": 0, "rows": [], "unusable": []}, parts[0].parent
    schema = pa.schema([field for field in pyarrow.parquet.read_schema(parts[0]) if field.name != SIDE])
    at_error = schema.names.index("error")
    shown, values = schema.names[:at_error], schema.names[at_error + 1 :] or schema.names[1:at_error]
    watch = Watch(job) if job.is_watched and results_of(job.problem).watched else None
    with (
        replacing(folder / PARQUET_NAME, within) as parquet,
        replacing(folder / CSV_NAME, within) as csv,
        pyarrow.parquet.ParquetWriter(parquet, schema) as rows,
        pyarrow.csv.CSVWriter(csv, schema) as lines,
    ):
        for part in parts:
            table = pyarrow.parquet.read_table(part)
            rows.write_table(table.select(schema.names))
            lines.write_table(table.select(schema.names))
            usable, unusable = (table.filter(choose(table["error"])) for choose in (compute.is_null, compute.is_valid))
            found["files"] += len(table)
            found["errors"] += len(unusable)
            if watch and len(usable):
                watch.add(np.column_stack([usable[name] for name in values]), usable[SIDE].drop_null().to_pylist())
            found["rows"] += usable.select(shown).slice(0, MAX_SHOWN - len(found["rows"])).to_pylist()
            found["unusable"] += unusable.slice(0, MAX_SHOWN - len(found["unusable"])).to_pylist()
    if watch:
        watch.save()
    return found
