"""Predict files by a Beam job. A worker predicts a block of files into a part, and the parts are joined by path.

A file that cannot be used has a row with the reason.
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
    """Predict a file, or all files below a folder but hidden ones, and replace the predictions in ``folder``.

    Returns:
        ``files``, how many there are, and ``errors``, how many of them could not be used.

    Raises:
        SettingsError: there is no file, or a folder cannot be read; the problem cannot predict files; Beam knows no
            such runner or flag.
        BusyError: another process predicts into ``folder``.
    """
    if not results_of(job.problem).prediction_rows:
        raise SettingsError(
            f"MODEL: expected a run of a problem that predicts files, got a run of {job.problem!r}. Install the "
            "package that has this problem, or name prediction_rows in its Results."
        )
    files, paths = _listed(path, units_of(job.problem).files)
    folder.mkdir(parents=True, exist_ok=True)
    with _parts_folder(folder) as parts:
        listing = parts / "paths.json"
        listing.write_text(json.dumps(paths), encoding="utf-8")
        job = replace(job, files=str(files), paths=str(listing), parts=str(parts))
        blocks = list(range(0, len(paths), _BLOCK_FILES))
        with running(settings) as pipeline:
            (
                pipeline
                | "Plan blocks" >> beam.Create(blocks)  # place of the first file
                | "Spread blocks" >> beam.Reshuffle()  # place of the first file
                | "Predict blocks" >> beam.Map(predict_block, job)  # place of the first file
            )
        return _join([_part(job, start) for start in blocks], folder)


def _listed(path: Path, what: str) -> tuple[Path, list[str]]:
    """A folder, and the paths of the files below it, or one of them."""
    if path.is_file():
        return path.parent, [path.name]
    try:
        paths = sorted(stamps(path))
    except FolderError as error:
        raise SettingsError(f"{what.upper()}: expected {error.expected}, got {str(path)!r}.{error.hint}") from error
    if not paths:
        raise SettingsError(f"{what.upper()}: expected a folder of {what}, got {str(path)!r}. It holds no file.")
    return path, paths


@contextmanager
def _parts_folder(folder: Path) -> Iterator[Path]:
    """A new folder for the parts, removed afterwards; that of a process that was killed is removed first."""
    parts, descriptor = folder / ".parts", os.open(folder, os.O_RDONLY)
    try:
        # Of the folder itself: nothing is left behind, and the end of the process ends it.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise BusyError(f"{folder}: another process writes predictions there. Wait for it, or name another.") from error
    try:
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        yield parts
    finally:
        shutil.rmtree(parts, ignore_errors=True)
        os.close(descriptor)


def predict_block(start: int, job: Job) -> int:
    """Predict a block of files and leave its part of the result, whole or not at all."""
    paths = _paths(job.paths)[start : start + _BLOCK_FILES]
    rows = results_of(job.problem).hook("prediction_rows")(paths, job, _network(job.run, job.model))
    with replacing(_part(job, start)) as temporary:
        pyarrow.parquet.write_table(pa.Table.from_batches(list(rows)), temporary)
    return start


@cache
def _network(run: str, model: str) -> LoadedModel:
    return load_trained(Path(run), model=model)


@cache
def _paths(listing: str) -> list[str]:
    return json.loads(Path(listing).read_text(encoding="utf-8"))


def _part(job: Job, start: int) -> Path:
    return Path(job.parts) / f"{start:012d}.parquet"


def _join(parts: Sequence[Path], folder: Path) -> dict[str, int]:
    """One Parquet and one CSV file of all parts. Both are replaced when they are whole."""
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
