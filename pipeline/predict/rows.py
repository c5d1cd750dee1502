"""Rows of predictions with labels and probabilities of images, or the surprise of texts."""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline import machine
from pipeline.predict import Job
from pipeline.problems.next_token.evaluation import MIN_PROBABILITY
from pipeline.records.features import form_of_any
from pipeline.records.vocabulary import UnknownCharacterError, Vocabulary
from pipeline.runs.load_model import LoadedModel
from pipeline.sources.files import read_file
from pipeline.sources.image_files import UndecodableError, inspect, stored_bytes
from pipeline.sources.image_reading import pixels_of
from pipeline.sources.labeled_texts import as_rows, cleaned
from pipeline.sources.labeled_texts.table import TextTable

_BATCH = 64
#: Paths as text, the outputs of the model, float32 (examples, labels), and the reason for each unusable example.
Batch = tuple[list[str], np.ndarray, pa.StringArray]
_NUMBERS = {"predicted": pa.int64(), "nats": pa.float64(), "bits": pa.float64(), "perplexity": pa.float64()}
_TEXT_ROW = pa.schema({"path": pa.string(), **_NUMBERS, "error": pa.string()})


def image_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the two likeliest labels and the probabilities of each image."""
    return _label_rows(batches_of(paths, job, model), job)


def labeled_text_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the two likeliest labels and the probabilities of each text."""
    (length,) = model.input_shape
    return _label_rows(_batches(paths, job, _text, lambda texts: model.probabilities(as_rows(texts, length))), job)


def _label_rows(batches: Iterator[Batch], job: Job) -> Iterator[pa.RecordBatch]:
    names = np.array(job.label_names)
    for batch, probabilities, errors in batches:
        best, second = np.argsort(-np.nan_to_num(probabilities, nan=-1), axis=1, kind="stable")[:, :2].T
        columns = {
            "label": names[best],
            "probability": probabilities[np.arange(len(batch)), best],
            "second_label": names[second],
        }
        is_error = errors.is_valid().to_numpy(zero_copy_only=False)
        columns = {name: pa.array(column, mask=is_error) for name, column in columns.items()}
        shares = columns_of([f"probability of {name}" for name in names], probabilities, errors)
        yield pa.RecordBatch.from_pydict({"path": batch, **columns, "error": errors, **shares})


def batches_of(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[Batch]:
    """Yield batches of images."""
    shape = model.input_shape
    form = form_of_any(shape, job.form.resize)

    def outputs_of(contents: Sequence[bytes]) -> np.ndarray:
        return model.probabilities(pixels_of(contents, form, shape[2]), job.views)

    return _batches(paths, job, partial(_content, shape=shape, job=job), outputs_of)


def _batches(
    paths: Sequence[str],
    job: Job,
    read: Callable[[Path], bytes | str],
    outputs_of: Callable[[Sequence[bytes]], np.ndarray],
) -> Iterator[Batch]:
    """Yield batches. ``read`` returns an example or a reason, and ``outputs_of`` the outputs for examples."""
    for start in range(0, len(paths), _BATCH):
        batch = paths[start : start + _BATCH]
        with ThreadPoolExecutor(machine.granted_cores()) as pool:
            contents = [*pool.map(lambda path: read(Path(job.files) / path), batch)]
        is_usable = np.array([isinstance(content, bytes) for content in contents])
        outputs = np.zeros((len(batch), len(job.label_names)), np.float32)
        if is_usable.any():
            outputs[is_usable] = outputs_of([content for content in contents if isinstance(content, bytes)])
        errors = pa.array([content if isinstance(content, str) else None for content in contents], pa.string())
        yield [*map(_as_text, batch)], outputs, errors


def columns_of(names: Sequence[str], outputs: np.ndarray, errors: pa.StringArray) -> dict[str, pa.Array]:
    """Return a column per output, float (images, names), without the values of unusable images."""
    is_error = errors.is_valid().to_numpy(zero_copy_only=False)
    return {name: pa.array(outputs[:, index], mask=is_error) for index, name in enumerate(names)}


def _text(path: Path) -> bytes | str:
    """Return a text as the source would store it, or the reason why it cannot."""
    # As one text, a table would get one label.
    if TextTable.has_name(path.name):
        return "a table, write each text to a file"
    try:
        return cleaned(read_file(path))
    except UndecodableError as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _content(path: Path, shape: tuple[int, int, int], job: Job) -> bytes | str:
    """Return a file's bytes as the records would store them, or the reason why they cannot."""
    height, width, _ = shape
    try:
        content = read_file(path)
        picture = inspect(content)
        if height != width and (picture.height, picture.width) != (height, width):
            size = f"{picture.width} by {picture.height}"
            return f"the image has {size} pixels, but the model requires {width} by {height}"
        return stored_bytes(content, job.form, is_plain=picture.plain, limits=job.value_range)
    except UndecodableError as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def text_rows(paths: Sequence[str], job: Job, model: LoadedModel) -> Iterator[pa.RecordBatch]:
    """Yield the mean surprise of each text. Sequences start without state, as in the evaluation."""
    vocabulary = Vocabulary(job.label_names)
    for path in paths:
        nats, error = _nats_of(Path(job.files) / path, model, vocabulary)
        row = {"path": _as_text(path), "predicted": len(nats), "error": error}
        if len(nats):
            mean = float(nats.mean())
            row |= {"nats": mean, "bits": mean / math.log(2), "perplexity": math.exp(mean)}
        yield pa.RecordBatch.from_pylist([row], _TEXT_ROW)


def _nats_of(path: Path, model: LoadedModel, vocabulary: Vocabulary) -> tuple[np.ndarray, str | None]:
    """Return the nats of each token of a text but the first, and the reason if there are none."""
    try:
        tokens = vocabulary.encode(read_file(path).decode("utf-8-sig"))
    except OSError as error:
        return np.empty(0), f"cannot be read: {error.strerror}"
    except UnknownCharacterError as error:
        return np.empty(0), str(error)
    except UnicodeDecodeError as error:
        return np.empty(0), f"not UTF-8 text: {error}"
    if len(tokens) < 2:
        return np.empty(0), "shorter than two tokens"
    return surprises(model, tokens), None


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
