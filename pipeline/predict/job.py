"""Beam job that predicts files. Workers predict blocks of files, and the block results are joined by path.

A file that cannot be used gets a row with the reason.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import apache_beam as beam
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipeline.errors import BusyError, SettingsError
from pipeline.predict import Job
from pipeline.problems.results import results_of
from pipeline.problems.units import units_of
from pipeline.runs.load_model import LoadedModel, load_trained
from pipeline.settings.data import RecordsSettings
from pipeline.shards.engine import running
from pipeline.shards.shared import replacing
from pipeline.sources.files import FolderError, stamps

PARQUET_NAME, CSV_NAME = "predictions.parquet", "predictions.csv"
_BLOCK_FILES = 512


def predict(job: Job, path: Path, folder: Path, settings: RecordsSettings) -> dict[str, int]:
    """Predict a file, or all files below a folder that are not hidden, and replace the predictions in ``folder``.

    Returns:
        The number of ``files``, and the number of unusable ones as ``errors``.

    Raises:
        SettingsError: There is no file, a folder is unreadable, the problem cannot predict files, or Beam rejects the
            runner or a flag.
        BusyError: Another process predicts into ``folder``.
    """
    if not results_of(job.problem).prediction_rows:
        raise SettingsError(
            f"MODEL: expected a run of a problem that predicts files, got a run of {job.problem!r}. Install the "
            "package of this problem, or set prediction_rows in its Results."
        )
    files, paths = _list_files(path, units_of(job.problem).files)
    folder.mkdir(parents=True, exist_ok=True)
    with _parts_folder(folder) as parts:
        listing = parts / "paths.json"
        listing.write_text(json.dumps(paths), encoding="utf-8")
        job = replace(job, files=str(files), paths=str(listing), parts=str(parts))
        blocks = list(range(0, len(paths), _BLOCK_FILES))
        with running(settings) as pipeline:
            (
                pipeline
                | "Plan blocks" >> beam.Create(blocks)  # index of the first file
                | "Spread blocks" >> beam.Reshuffle()  # index of the first file
                | "Predict blocks" >> beam.Map(predict_block, job)  # index of the first file
            )
        return _join([_part_path(job, start) for start in blocks], folder)


def _list_files(path: Path, units: str) -> tuple[Path, list[str]]:
    """Return a folder and the paths of the files below it, or of a single file."""
    if path.is_file():
        return path.parent, [path.name]
    try:
        paths = sorted(stamps(path))
    except FolderError as error:
        raise SettingsError(f"{units.upper()}: expected {error.expected}, got {str(path)!r}.{error.hint}") from error
    if not paths:
        raise SettingsError(f"{units.upper()}: expected a folder of {units}, got {str(path)!r}. It contains no file.")
    return path, paths


@contextmanager
def _parts_folder(folder: Path) -> Iterator[Path]:
    """Create a folder for block results, after removing that of a killed process, and remove it afterwards."""
    parts, descriptor = folder / ".parts", os.open(folder, os.O_RDONLY)
    try:
        # A lock on the folder leaves no file and ends with the process.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise BusyError(f"{folder}: another process writes predictions there. Wait for it, or pass another.") from error
    try:
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        yield parts
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        os.close(descriptor)


def predict_block(start: int, job: Job) -> int:
    """Predict a block of files and write its result atomically."""
    paths = _paths(job.paths)[start : start + _BLOCK_FILES]
    batches = results_of(job.problem).hook("prediction_rows")(paths, job, _model(job.run, job.model))
    with replacing(_part_path(job, start)) as temporary:
        pyarrow.parquet.write_table(pa.Table.from_batches(list(batches)), temporary)
    return start


@cache
def _model(run: str, model: str) -> LoadedModel:
    return load_trained(Path(run), model=model)


@cache
def _paths(listing: str) -> list[str]:
    return json.loads(Path(listing).read_text(encoding="utf-8"))


def _part_path(job: Job, start: int) -> Path:
    return Path(job.parts) / f"{start:012d}.parquet"


def _join(parts: Sequence[Path], folder: Path) -> dict[str, int]:
    """Join the block results into a Parquet and a CSV file, which replace the earlier ones when complete."""
    counts, within = {"files": 0, "errors": 0}, parts[0].parent
    schema = pyarrow.parquet.read_schema(parts[0])
    with (
        replacing(folder / PARQUET_NAME, within) as parquet,
        replacing(folder / CSV_NAME, within) as csv,
        pyarrow.parquet.ParquetWriter(parquet, schema) as rows,
        pyarrow.csv.CSVWriter(csv, schema) as lines,
    ):
        for part in parts:
            table = pyarrow.parquet.read_table(part)
            rows.write_table(table)
            lines.write_table(table)
            counts["files"] += len(table)
            counts["errors"] += len(table) - table["error"].null_count
    return counts
