"""Images: labels and probabilities of image files (predict's rows of a run that classifies images)."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.predict import Job, shown
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
        found = [_content(Path(job.files) / path, shape, job.value_range) for path in batch]
        usable = [row for row, content in enumerate(found) if isinstance(content, bytes)]
        probabilities = np.zeros((len(batch), len(job.label_names)), np.float32)
        if usable:
            probabilities[usable] = network([found[row] for row in usable])
        best = np.nan_to_num(probabilities, nan=-1).argmax(axis=1)
        is_error = np.isin(np.arange(len(batch)), usable, invert=True)
        columns = {
            "path": pa.array([shown(path) for path in batch], pa.string()),
            "label": pa.array([job.label_names[at] for at in best], pa.string(), mask=is_error),
            "probability": pa.array(probabilities[np.arange(len(batch)), best], mask=is_error),
            "error": pa.array([content if isinstance(content, str) else None for content in found], pa.string()),
        }
        for number, name in enumerate(job.label_names):
            columns[f"probability of {name}"] = pa.array(probabilities[:, number], mask=is_error)
        yield pa.RecordBatch.from_pydict(columns)


def _content(path: Path, shape: tuple[int, int, int], value_range: tuple[int, int]) -> bytes | str:
    """A file's bytes as TensorFlow can decode them, or the reason why it cannot."""
    height, width, _ = shape
    try:
        content = read_file(path)
        picture = inspect(content)
        if height != width and (picture.height, picture.width) != (height, width):
            found = f"{picture.width} by {picture.height}"
            return f"an image of {found} pixels, where the network takes {width} by {height} and no square"
        return content if picture.plain else made_plain(content, value_range=value_range)
    except UndecodableError as error:
        return str(error)
    except OSError as error:
        return f"cannot be read: {error.strerror}"


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
