"""Texts: how much each text file surprises a network (predict's rows of a run of text).

As in evaluation: sequences follow one another, each begins without memory, and each token of a text but its first is
predicted once; the last sequence may be shorter.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.predict import Job, shown
from pipeline.problems.next_token.evaluation import LEAST_PROBABILITY
from pipeline.records.vocabulary import UnknownCharacterError, Vocabulary
from pipeline.runs.trained import TrainedNetwork, load_trained
from pipeline.sources.files import read_file

_BATCH = 64
_NUMBERS = {"predicted": pa.int64(), "nats": pa.float64(), "bits": pa.float64(), "perplexity": pa.float64()}
_ROW = pa.schema({"path": pa.string(), **_NUMBERS, "error": pa.string()})


def rows_of(paths: Sequence[str], job: Job) -> Iterator[pa.RecordBatch]:
    """Rows of so many files, one at a time."""
    network, vocabulary = _network(job.run, job.model), Vocabulary(job.label_names)
    for path in paths:
        nats, error = _nats_of(Path(job.files) / path, network, vocabulary)
        mean = float(nats.mean()) if len(nats) else None
        row = {"path": shown(path), "predicted": len(nats), "error": error}
        if mean is not None:
            row |= {"nats": mean, "bits": mean / math.log(2), "perplexity": math.exp(mean)}
        yield pa.RecordBatch.from_pylist([row], _ROW)


def _nats_of(path: Path, network: TrainedNetwork, vocabulary: Vocabulary) -> tuple[np.ndarray, str | None]:
    """Of each token of a text but the first, and why there are none."""
    try:
        tokens = vocabulary.encode(read_file(path).decode("utf-8-sig"))
    except OSError as error:
        return np.empty(0), f"cannot be read: {error.strerror}"
    except UnknownCharacterError as error:
        return np.empty(0), str(error)
    except UnicodeDecodeError as error:
        return np.empty(0), f"no text in UTF-8: {error}"
    if len(tokens) < 2:
        return np.empty(0), "shorter than two tokens"
    return surprises(network, tokens), None


def surprises(network: TrainedNetwork, tokens: np.ndarray) -> np.ndarray:
    """float64 (tokens - 1,): nats of each token but the first."""
    (length,) = network.input_shape
    count = len(tokens) - 1
    sequences = -(-count // length)
    # Shapes stay static: the end of the last sequence is filled, and what is said of it left out.
    inputs, labels = np.zeros((2, sequences * length), np.uint8)
    inputs[:count], labels[:count] = tokens[:-1], tokens[1:]
    found = []
    for first in range(0, sequences, _BATCH):
        rows = slice(first * length, min(first + _BATCH, sequences) * length)
        given = network.probabilities(inputs[rows].reshape(-1, length))
        likely = np.take_along_axis(given, labels[rows].reshape(-1, length, 1).astype(np.int64), axis=2)
        found.append(-np.log(likely.astype(np.float64).ravel() + LEAST_PROBABILITY))
    return np.concatenate(found)[:count]


@cache
def _network(run: str, model: str) -> TrainedNetwork:
    return load_trained(Path(run), model=model)
