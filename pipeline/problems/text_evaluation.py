"""Text evaluation: where a trained network is surprised by the test split (next_token's aid).

Of each prediction the surprise and whether the likeliest token came are kept, no probabilities: as many as the
vocabulary has would not fit in memory for a long text.
"""

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import keras
import numpy as np

from pipeline.networks.model import trained_by_logits
from pipeline.problems.problem import Stream
from pipeline.problems.units import NEXT_TOKEN
from pipeline.problems.writing import PROMPT_TOKENS, write_text
from pipeline.records.vocabulary import Vocabulary
from pipeline.runs.metrics import EVALUATION_NAME

MAX_PASSAGES = 8
# Least probability that a surprise is computed of: float32 has none below, and a loss of infinity says less.
_LEAST_PROBABILITY = 1e-37


@dataclass(frozen=True)
class Surprises:
    """What a network makes of a split, in its stored order.

    ``nats``: float32 (examples, length), −ln of the probability given to the token that came; NaN where the network
    diverged. ``right``: bool (examples, length), whether no other was given more.
    """

    nats: np.ndarray
    right: np.ndarray


class Surprise(keras.layers.Layer):
    """(int labels (batch, length), outputs (batch, length, n)) → float32 (batch, length, 2): nats, 1 where right."""

    def __init__(self, from_logits: bool) -> None:
        super().__init__(dtype="float32")
        self._from_logits = from_logits

    def call(self, labels: keras.KerasTensor, outputs: keras.KerasTensor) -> keras.KerasTensor:
        """See the class."""
        labels, outputs = keras.ops.cast(labels, "int32"), keras.ops.cast(outputs, "float32")
        logs = keras.ops.log_softmax(outputs) if self._from_logits else keras.ops.log(outputs + _LEAST_PROBABILITY)
        nats = -keras.ops.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
        right = keras.ops.cast(keras.ops.equal(keras.ops.argmax(outputs, axis=-1), labels), "float32")
        return keras.ops.stack([nats, right], axis=-1)


@lru_cache(maxsize=1)
def _surprised(model: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    """The network with what is computed of its outputs; kept from epoch to epoch, for tracing takes a second."""
    # JAX lays a model out over its devices by itself.
    strategy = getattr(model, "distribute_strategy", None)
    with strategy.scope() if strategy else contextlib.nullcontext():
        tokens, labels = keras.Input(shape, dtype="uint8"), keras.Input(shape, dtype="int32")
        found = Surprise(trained_by_logits(model))(labels, model(tokens, training=False))
        return keras.Model([tokens, labels], found)


def predict(model: keras.Model, held_out: Stream) -> Surprises:
    """One pass of a compiled network (uint8 tokens → logits or probabilities) over a split."""
    (size,) = held_out.split.content_shape
    pairs = held_out.evaluation().map(lambda tokens, labels: ((tokens, labels),))
    found = _surprised(model, (size - 1,)).predict(pairs, verbose=0)
    return Surprises(found[..., 0], found[..., 1] > 0.5)


def evaluate(
    found: Surprises,
    *,
    model: keras.Model,
    network: str,
    seed: int,
    test: Stream,
    manifest: Mapping,
    folder: Path,
) -> dict:
    """Look closely at the surprises, let the network write, and leave evaluation.json in ``folder``.

    Args:
        found: of the test split.
        model: the trained network.
        network: its name in the settings.
        seed: of what is written.
        test: the input stream of the test split.
        manifest: that of the records.
        folder: the run's folder.

    Returns:
        The facts as written.
    """
    vocabulary = Vocabulary(tuple(manifest["label_names"]))
    nats = np.nan_to_num(found.nats, nan=-math.log(_LEAST_PROBABILITY))
    means = nats.mean(axis=1)
    # Of two that surprise alike the first.
    places = np.argsort(-means, kind="stable")[:MAX_PASSAGES]
    prompt_from = int(np.random.default_rng(seed).integers(len(nats)))
    sequences = _sequences(test, [*places.tolist(), prompt_from])
    loss = float(nats.mean())
    facts = {
        "problem": NEXT_TOKEN,
        "tokens": test.split.problem.units.many,
        "vocabulary": list(vocabulary.names),
        "characters": {split: sum(one["label_counts"].values()) for split, one in manifest["splits"].items()},
        "sequence_length": nats.shape[1],
        "num_examples": len(nats),
        "loss": loss,
        "bits": loss / math.log(2),
        "perplexity": math.exp(min(loss, 700)),
        "accuracy": float(found.right.mean()),
        "position_loss": [round(float(one), 5) for one in nats.mean(axis=0)],
        "passages": [
            {"index": int(place), **passage(vocabulary, sequence, nats[place])}
            for place, sequence in zip(places, sequences, strict=False)
        ],
        "written": write_text(
            model, vocabulary, network, sequences[-1][:PROMPT_TOKENS], length=nats.shape[1], seed=seed
        ),
        "data_warnings": [list(warning) for warning in manifest.get("warnings", ())],
    }
    (folder / EVALUATION_NAME).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def passage(vocabulary: Vocabulary, sequence: np.ndarray, nats: np.ndarray) -> dict:
    """A sequence as text, character by character, with the surprise of each.

    Args:
        vocabulary: of the tokens.
        sequence: (length + 1,) tokens, the first of which is not predicted.
        nats: (length,) of the others.

    Returns:
        ``loss``, the mean; ``pieces`` of text, and as many ``nats``, of a character of several bytes their sum, of the
        first null.
    """
    pieces, sums, waiting = [], [], 0.0
    for text, one in zip(vocabulary.pieces(sequence), [math.nan, *nats.tolist()], strict=True):
        waiting += one
        if text:
            pieces.append(text)
            sums.append(None if math.isnan(waiting) else round(waiting, 3))
            waiting = 0.0
    return {"loss": round(float(nats.mean()), 4), "pieces": pieces, "nats": sums}


def _sequences(test: Stream, places: list[int]) -> np.ndarray:
    """The sequences of the split at these places, uint8 (places, length + 1); one pass over it."""
    wanted, start = np.array(places), 0
    found = np.empty((len(wanted), *test.split.content_shape), np.uint8)
    for tokens, labels in test.evaluation().as_numpy_iterator():
        here = (wanted >= start) & (wanted < start + len(tokens))
        found[here, :-1] = tokens[wanted[here] - start]
        found[here, -1] = labels[wanted[here] - start, -1]
        start += len(tokens)
    return found
