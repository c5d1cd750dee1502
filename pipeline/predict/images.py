"""Images: labels and probabilities of image files (predict's rows of a run that classifies images)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.predict.plan import Job, shown
from pipeline.records.features import form_of_any
from pipeline.runs.trained import load_trained
from pipeline.sources.files import read_file
from pipeline.sources.image_files import UndecodableError, inspect, made_plain
from pipeline.sources.image_reading import pixels_of

_BATCH = 64


def rows_of(paths: Sequence[str], job: Job) -> Iterator[pa.RecordBatch]:
    """Rows of so many files, a batch at a time."""
    shape, network = _network(job.run, job.model, job.resize, job.views)
    for first in range(0, len(paths), _BATCH):
        batch = paths[first : first + _BATCH]
        contents, errors = zip(
            *(_content(Path(job.files) / path, shape, job.value_range) for path in batch), strict=True
        )
        usable = [row for row, content in enumerate(contents) if content is not None]
        probabilities = np.full((len(batch), len(job.label_names)), np.nan, np.float32)
        if usable:
            probabilities[usable] = network([contents[row] for row in usable])
        best = np.nan_to_num(probabilities, nan=-1).argmax(axis=1)
        known = [error is None for error in errors]
        columns = {
            "path": pa.array([shown(path) for path in batch], pa.string()),
            "label": pa.array(
                [job.label_names[at] if ok else None for at, ok in zip(best, known, strict=True)], pa.string()
            ),
            "probability": _floats(probabilities[np.arange(len(batch)), best], known),
            "error": pa.array(errors, pa.string()),
        }
        for number, name in enumerate(job.label_names):
            columns[f"probability of {name}"] = _floats(probabilities[:, number], known)
        yield pa.RecordBatch.from_pydict(columns)


def _floats(values: np.ndarray, known: Sequence[bool]) -> pa.Array:
    return pa.array(values, pa.float32(), mask=~np.array(known))


def _content(path: Path, shape: tuple[int, int, int], value_range: tuple[int, int]) -> tuple[bytes | None, str | None]:
    """A file's bytes as TensorFlow can decode them, or why there are none."""
    height, width, _ = shape
    try:
        content = read_file(path)
        picture = inspect(content)
        if height != width and (picture.height, picture.width) != (height, width):
            found = f"{picture.width} by {picture.height}"
            return None, f"an image of {found} pixels, where the network takes {width} by {height} and no square"
        return (content if picture.plain else made_plain(content, value_range=value_range)), None
    except UndecodableError as error:
        return None, str(error)
    except OSError as error:
        return None, f"cannot be read: {error.strerror}"


@cache
def _network(
    run: str, model: str, resize: str, views: str
) -> tuple[tuple[int, int, int], Callable[[list[bytes]], np.ndarray]]:
    """The shape of its images, and a function from encoded ones to probabilities float32 (images, labels).

    Loaded once in a process.
    """
    trained = load_trained(Path(run), model=model)
    shape = trained.input_shape
    form = form_of_any(shape, resize)
    return shape, lambda contents: trained.probabilities(pixels_of(contents, form, shape[2]), views)
