"""Predict: a trained network's labels and probabilities for a folder of images (… → run → **predictions**).

A Beam job: a block of images is read, decoded and predicted on one worker, which leaves a part of the result as a file;
the parts are then joined in the order of their paths. However many images there are, each worker holds a batch of them.
What cannot be decoded has a row with the reason instead of a label.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from pipeline.config import RecordsSettings
from pipeline.errors import BusyError, SettingsError
from pipeline.records.form import ImageForm
from pipeline.runs.trained import load_trained
from pipeline.shards.job import make_options, make_runner
from pipeline.shards.workers import watching_workers
from pipeline.sources.file_blocks import pixels_of
from pipeline.sources.listing import FolderError, read_file, stamps
from pipeline.sources.pictures import UndecodableError, inspect, made_plain

PARQUET_NAME, CSV_NAME = "predictions.parquet", "predictions.csv"
_BLOCK_IMAGES, _BATCH = 512, 64


@dataclass(frozen=True)
class Job:
    """What every step needs to know; small, and plain data.

    ``run`` is the folder of a run; ``resize`` how images reach its network's size; ``images`` their folder; ``paths`` a
    JSON file that lists them; ``parts`` a folder that workers share.
    """

    run: str
    resize: str
    label_names: tuple[str, ...]
    images: str
    paths: str
    parts: str


def predict(
    run: Path, images: Path, folder: Path, *, resize: str, label_names: Sequence[str], settings: RecordsSettings
) -> dict[str, int]:
    """Predict every image below a folder; leaves predictions.parquet and predictions.csv.

    Args:
        run: the folder of a run.
        images: the folder; hidden files are left out, all others are taken for images.
        folder: where the predictions go; the files there are replaced once all is done.
        resize: crop, pad or stretch, as the records were made that the network was trained on.
        label_names: in the order of the probabilities.
        settings: Beam's runner and its flags.

    Returns:
        ``images``, how many there are, and ``errors``, how many of them could not be decoded.

    Raises:
        SettingsError: there is no image, or a folder cannot be read; Beam knows no such runner or flag.
        BusyError: another process predicts into ``folder``.
    """
    paths = _listed(images)
    folder.mkdir(parents=True, exist_ok=True)
    with _parts_folder(folder) as parts:
        listing = parts / "paths.json"
        listing.write_text(json.dumps(paths), encoding="utf-8")
        job = Job(str(run), resize, tuple(label_names), str(images), str(listing), str(parts))
        runner = make_runner(settings)
        blocks = list(range(0, len(paths), _BLOCK_IMAGES))
        with watching_workers(), beam.Pipeline(runner=runner, options=make_options(settings, runner)) as pipeline:
            (
                pipeline
                | "Plan blocks" >> beam.Create(blocks)  # place of the first image
                | "Spread blocks" >> beam.Reshuffle()  # place of the first image
                | "Predict blocks" >> beam.Map(predict_block, job)  # place of the first image
            )
        return _join([_part(job, start) for start in blocks], folder)


def _listed(images: Path) -> list[str]:
    try:
        paths = sorted(stamps(images))
    except FolderError as error:
        raise SettingsError(f"IMAGES: expected {error.expected}, got {str(images)!r}.{error.hint}") from error
    if not paths:
        raise SettingsError(f"IMAGES: expected a folder of images, got {str(images)!r}. It holds no file.")
    return paths


@contextmanager
def _parts_folder(folder: Path) -> Iterator[Path]:
    """A new folder for the parts, removed afterwards; that of a process that was killed is removed first.

    Raises:
        BusyError: another process predicts into the same folder.
    """
    parts, descriptor = folder / ".parts", os.open(folder, os.O_RDONLY)
    try:
        # Of the folder itself: nothing is left behind, and the end of the process ends it.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(parts, ignore_errors=True)
        parts.mkdir()
        try:
            yield parts
        finally:
            shutil.rmtree(parts)
    except BlockingIOError as error:
        raise BusyError(f"{folder}: another process writes predictions there. Wait for it, or name another.") from error
    finally:
        os.close(descriptor)


def predict_block(start: int, job: Job) -> int:
    """Predict a block of images and leave its part of the result, whole or not at all."""
    paths = _paths(job.paths)[start : start + _BLOCK_IMAGES]
    table = pa.Table.from_batches(list(_predicted(paths, job)))
    part = _part(job, start)
    temporary = part.with_suffix(f".{os.getpid()}")
    pyarrow.parquet.write_table(table, temporary)
    os.replace(temporary, part)
    return start


def _predicted(paths: Sequence[str], job: Job) -> Iterator[pa.RecordBatch]:
    network = _network(job.run, job.resize)
    for first in range(0, len(paths), _BATCH):
        batch = paths[first : first + _BATCH]
        contents, errors = zip(*(_content(Path(job.images) / path) for path in batch), strict=True)
        usable = [row for row, content in enumerate(contents) if content is not None]
        probabilities = np.full((len(batch), len(job.label_names)), np.nan, np.float32)
        if usable:
            probabilities[usable] = network([contents[row] for row in usable])
        best = np.nan_to_num(probabilities, nan=-1).argmax(axis=1)
        known = [error is None for error in errors]
        columns = {
            "path": pa.array([_shown(path) for path in batch], pa.string()),
            "label": pa.array(
                [job.label_names[at] if ok else None for at, ok in zip(best, known, strict=True)], pa.string()
            ),
            "probability": _floats(probabilities[np.arange(len(batch)), best], known),
            "error": pa.array(errors, pa.string()),
        }
        for number, name in enumerate(job.label_names):
            columns[f"probability of {name}"] = _floats(probabilities[:, number], known)
        yield pa.RecordBatch.from_pydict(columns)


def _shown(path: str) -> str:
    """The path as text: a file may have a name that is none."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _floats(values: np.ndarray, known: Sequence[bool]) -> pa.Array:
    return pa.array(values, pa.float32(), mask=~np.array(known))


def _content(path: Path) -> tuple[bytes | None, str | None]:
    """A file's bytes as TensorFlow can decode them, or why there are none."""
    try:
        content = read_file(path)
        return (content if inspect(content).plain else made_plain(content)), None
    except UndecodableError as error:
        return None, str(error)
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"


@cache
def _network(run: str, resize: str) -> Callable[[list[bytes]], np.ndarray]:
    """A function from encoded images to probabilities float32 (images, labels); loaded once in a process."""
    trained = load_trained(Path(run))
    _, height, _, channels = trained.model.input_shape
    form = ImageForm(height, resize, "image")
    return lambda contents: trained.probabilities(pixels_of(contents, form, channels))


@cache
def _paths(listing: str) -> list[str]:
    return json.loads(Path(listing).read_text(encoding="utf-8"))


def _part(job: Job, start: int) -> Path:
    return Path(job.parts) / f"{start:012d}.parquet"


def _join(parts: Iterable[Path], folder: Path) -> dict[str, int]:
    """One Parquet and one CSV file of all parts; each takes its place when it is whole."""
    counts = {"images": 0, "errors": 0}
    temporary = {name: folder / f".{name}.{os.getpid()}" for name in (PARQUET_NAME, CSV_NAME)}
    schema = pyarrow.parquet.read_schema(next(iter(parts)))
    with (
        pyarrow.parquet.ParquetWriter(temporary[PARQUET_NAME], schema) as parquet,
        pyarrow.csv.CSVWriter(temporary[CSV_NAME], schema) as csv,
    ):
        for part in parts:
            table = pyarrow.parquet.read_table(part)
            parquet.write_table(table)
            csv.write_table(table)
            counts["images"] += len(table)
            counts["errors"] += len(table) - table["error"].null_count
    for name, path in temporary.items():
        os.replace(path, folder / name)
    return counts
