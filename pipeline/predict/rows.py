"""Rows of predictions with labels, probabilities or numbers of files, or the surprise of texts."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from pipeline import machine
from pipeline.predict import Job
from pipeline.problems.next_token.evaluation import MIN_PROBABILITY
from pipeline.records.features import form_of_any
from pipeline.records.vocabulary import UnknownCharacterError, Vocabulary
from pipeline.runs.load_model import LoadedModel
from pipeline.runs.predictions import read_thresholds
from pipeline.sources.files import read_file
from pipeline.sources.image_files import UndecodableError, inspect, stored_bytes
from pipeline.sources.reading import as_rows, pixels_of
from pipeline.sources.text import TextTable, cleaned, plain_text

_BATCH = 64
# Column that is counted and not written, see job.py.
SIDE = "shorter side"
Columns = dict[str, np.ndarray | list[str]]
#: Outputs of the model, float32 (examples, labels) → the columns before and after that of the reason.
ColumnsOf = Callable[[np.ndarray], tuple[Columns, Columns]]
_NUMBERS = {"predicted": pa.int64(), "nats": pa.float64(), "bits": pa.float64(), "perplexity": pa.float64()}
_TEXT_ROW = pa.schema({"path": pa.string(), **_NUMBERS, "error": pa.string()})
Content = TypeVar("Content")


def class_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the two likeliest labels and the probabilities of each image or text."""
    return _rows(paths, job, model, partial(_likeliest, job.label_names))


def label_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the labels above their thresholds, separated by semicolons, and the probability of each label."""
    thresholds, names = read_thresholds(Path(job.run)), np.array(job.label_names)

    def columns_of(probabilities: np.ndarray) -> tuple[Columns, Columns]:
        labels = ["; ".join(names[row]) for row in probabilities >= thresholds]
        return {"labels": labels}, _shares(job.label_names, probabilities)

    return _rows(paths, job, model, columns_of)


def value_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the predicted numbers of each image. A number with the name of another column is called predicted."""
    names = [f"predicted {name}" if name in ("path", "error", SIDE) else name for name in job.label_names]
    return _rows(paths, job, model, lambda values: (dict(zip(names, values.T, strict=True)), {}))


def _rows(paths: Sequence[str], job: Job, model: LoadedModel, columns_of: ColumnsOf) -> Iterator[pa.RecordBatch]:
    """Yield batches of rows. Unusable files have no values."""
    shape = model.input_shape

    def read(path: Path) -> tuple[bytes, int | None]:
        # As one text, a table would get one label.
        if job.form is None and TextTable.has_name(path.name):
            raise UndecodableError("a table, write each text to a file")
        return stored_content(read_file(path), shape, job)

    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH]
        with ThreadPoolExecutor(machine.granted_cores()) as pool:
            contents, reasons = zip(*pool.map(partial(_attempt, read, job), batch), strict=True)
        is_unusable = np.array([content is None for content in contents])
        outputs = np.zeros((len(batch), len(job.label_names)), np.float32)
        if not is_unusable.all():
            inputs = inputs_of([content[0] for content in contents if content], shape, job)
            outputs[~is_unusable] = model.probabilities(inputs, job.views)
        before, after = (
            {name: pa.array(values, mask=is_unusable) for name, values in columns.items()}
            for columns in columns_of(outputs)
        )
        errors, sides = pa.array(reasons, pa.string()), [content and content[1] for content in contents]
        columns = {"path": [*map(_as_text, batch)], **before, "error": errors, **after}
        yield pa.RecordBatch.from_pydict(columns | {SIDE: pa.array(sides, pa.int64())})


def _likeliest(label_names: Sequence[str], probabilities: np.ndarray) -> tuple[Columns, Columns]:
    names, rows = np.array(label_names), np.arange(len(probabilities))
    best, second = np.argsort(-np.nan_to_num(probabilities, nan=-1), axis=1, kind="stable")[:, :2].T
    columns = {"label": names[best], "probability": probabilities[rows, best], "second_label": names[second]}
    return columns, _shares(label_names, probabilities)


def _shares(label_names: Sequence[str], probabilities: np.ndarray) -> Columns:
    return {f"probability of {name}": share for name, share in zip(label_names, probabilities.T, strict=True)}


def _attempt(read: Callable[[Path], Content], job: Job, path: str) -> tuple[Content | None, str | None]:
    """Return the content of a file, or the reason why it cannot be used."""
    try:
        return read(Path(job.files) / path), None
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"
    except (UndecodableError, UnknownCharacterError) as error:
        return None, str(error)


def stored_content(content: bytes, shape: tuple[int, ...], job: Job) -> tuple[bytes, int | None]:
    """Return a file's bytes as the records would store them, and the shorter side of an image.

    ``shape`` is that of an input of the model. UndecodableError: the file is unusable.
    """
    if job.form is None:
        return cleaned(content), None
    height, width, _ = shape
    picture = inspect(content)
    if height != width and (picture.height, picture.width) != (height, width):
        raise UndecodableError(
            f"the image has {picture.width} by {picture.height} pixels, but the model requires {width} by {height}"
        )
    stored = stored_bytes(content, job.form, is_plain=picture.plain, limits=job.value_range)
    return stored, min(picture.height, picture.width)


def inputs_of(contents: Sequence[bytes], shape: tuple[int, ...], job: Job) -> np.ndarray:
    """Return stored contents as inputs of the model, uint8 (files, *shape)."""
    if job.form is None:
        return as_rows(contents, *shape)
    return pixels_of(contents, form_of_any(shape, job.form.resize), shape[2])


def text_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the mean surprise of each text. Sequences start without state, as in the evaluation."""
    read = partial(_tokens, Vocabulary(job.label_names))
    for path in paths:
        tokens, error = _attempt(read, job, path)
        row = {"path": _as_text(path), "predicted": 0, "error": error}
        if tokens is not None:
            nats = surprises(model, tokens)
            mean = float(nats.mean())
            row |= {"predicted": len(nats), "nats": mean, "bits": mean / math.log(2), "perplexity": math.exp(mean)}
        yield pa.RecordBatch.from_pylist([row], _TEXT_ROW)


def _tokens(vocabulary: Vocabulary, path: Path) -> np.ndarray:
    tokens = vocabulary.encode(plain_text(read_file(path)))
    if len(tokens) < 2:
        raise UndecodableError("shorter than two tokens")
    return tokens


def surprises(model: LoadedModel, tokens: np.ndarray) -> np.ndarray:
    """Return the nats of each token but the first, float64 (tokens - 1,)."""
    (length,) = model.input_shape
    count = len(tokens) - 1
    sequences = -(-count // length)
    # Shapes stay static, so zeros fill the last sequence. Their outputs are omitted.
    inputs, labels = np.zeros((2, sequences * length), np.uint8)
    inputs[:count], labels[:count] = tokens[:-1], tokens[1:]
    nats = []
    for start in range(0, sequences, _BATCH):
        rows = slice(start * length, min(start + _BATCH, sequences) * length)
        probabilities = model.probabilities(inputs[rows].reshape(-1, length))
        likely = np.take_along_axis(probabilities, labels[rows].reshape(-1, length, 1).astype(np.int64), axis=2)
        nats.append(-np.log(likely.astype(np.float64).ravel() + MIN_PROBABILITY))
    return np.concatenate(nats)[:count]


def _as_text(path: str) -> str:
    """Return the path as text, because file names may contain other bytes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
