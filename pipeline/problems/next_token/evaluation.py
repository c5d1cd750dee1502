"""Evaluation of a text model on the test split, and text that it writes.

A model of the pipeline writes in its one-step form with its own state, so a token costs one step. User code predicts
from the last tokens as a sequence. All temperatures are written as one batch, and the seed determines every draw.
"""

import contextlib
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import keras
import numpy as np

from pipeline.errors import message
from pipeline.models.build import load_function
from pipeline.models.model import LOGITS, kind_trained_on, named_variables
from pipeline.problems.problem import EvaluatedRun, EvaluationSummary, Stream, examples_at
from pipeline.records.vocabulary import Vocabulary
from pipeline.settings.training import MODELS

MAX_PASSAGES = 8
#: Divisors of the logits. Likely tokens become likelier below 1.
TEMPERATURES = (0.5, 0.8, 1.0)
PROMPT_TOKENS = 40
WRITTEN_TOKENS = 400
# The surprise of a smaller probability would be infinite in float32.
LEAST_PROBABILITY = 1e-37

#: Tokens uint8 (batch,) → the model's outputs for the next, float32 (batch, vocabulary).
Step = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Surprises:
    """Predictions for a split, in its stored order, without the probabilities, which may not fit in memory.

    ``nats``: float32 (examples, length), −ln of the probability given to the true token, NaN if the model diverged.
    ``right``: bool (examples, length), whether no other token got more.
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
        logs = keras.ops.log_softmax(outputs) if self._from_logits else keras.ops.log(outputs + LEAST_PROBABILITY)
        nats = -keras.ops.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
        return keras.ops.stack([nats, keras.metrics.sparse_categorical_accuracy(labels, outputs)], axis=-1)


@lru_cache(maxsize=1)
def _surprised(model: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    """The model with ``Surprise`` behind it, cached because tracing takes a second."""
    # JAX distributes a model over its devices by itself.
    strategy = getattr(model, "distribute_strategy", None)
    with strategy.scope() if strategy else contextlib.nullcontext():
        tokens, labels = keras.Input(shape, dtype="uint8"), keras.Input(shape, dtype="int32")
        found = Surprise(kind_trained_on(model) == LOGITS)(labels, model(tokens, training=False))
        return keras.Model([tokens, labels], found)


def predict(model: keras.Model, stream: Stream, test_time_augmentation: str = "none") -> Surprises:
    """One pass over a split. A text has no views."""
    (size,) = stream.split.content_shape
    pairs = stream.evaluation().map(lambda tokens, labels: ((tokens, labels),))
    found = _surprised(model, (size - 1,)).predict(pairs, verbose=0)
    return Surprises(found[..., 0], found[..., 1] > 0.5)


def figures(model: keras.Model, predictions: Surprises) -> dict[str, float]:
    """Of all tokens alike."""
    return {"loss": float(predictions.nats.mean()), "accuracy": float(predictions.right.mean())}


def quick_figures(model: keras.Model, stream: Stream) -> dict[str, float]:
    """The same."""
    return figures(model, predict(model, stream))


def evaluate(predictions: Surprises, run: EvaluatedRun) -> EvaluationSummary:
    """Write evaluation.json. See ``Problem.evaluation``."""
    manifest, settings = run.manifest, run.settings
    vocabulary = Vocabulary(tuple(manifest["label_names"]))
    nats = np.nan_to_num(predictions.nats, nan=-math.log(LEAST_PROBABILITY))
    places = np.argsort(-nats.mean(axis=1), kind="stable")[:MAX_PASSAGES].tolist()
    prompt_from = int(np.random.default_rng(settings.seed).integers(len(nats)))
    found = examples_at(run.test, [*places, prompt_from])
    sequences = [np.append(tokens, labels[-1]) for tokens, labels in found]
    passages = [
        {"index": place, **passage(vocabulary, sequence, nats[place])}
        for place, sequence in zip(places, sequences, strict=False)
    ]
    prompt = sequences[-1][:PROMPT_TOKENS]
    written = write_text(run.model, vocabulary, settings.model, prompt, length=nats.shape[1], seed=settings.seed)
    loss = float(nats.mean())
    facts = {
        "problem": "next_token",
        "tokens": "bytes" if vocabulary.is_bytes else "characters",
        "vocabulary": list(vocabulary.names),
        "characters": {split: sum(one["label_counts"].values()) for split, one in manifest["splits"].items()},
        "sequence_length": nats.shape[1],
        "num_examples": len(nats),
        "loss": loss,
        "bits": loss / math.log(2),
        "perplexity": math.exp(min(loss, 700)),
        "accuracy": float(predictions.right.mean()),
        "position_loss": [round(float(one), 5) for one in nats.mean(axis=0)],
        "passages": passages,
        "written": written,
        "data_warnings": [list(warning) for warning in manifest.get("warnings", ())],
    }
    run.write(facts)
    shown = {_title(one["temperature"]): one["text"] for one in written}
    shown[_title(None)] = "\n\n".join("".join(one["pieces"]) for one in passages)
    # Indented, so that Markdown shows it as code.
    return EvaluationSummary(facts, {name: textwrap.indent(text, " " * 4) for name, text in shown.items()}, {})


@message
def _title(temperature: float | None) -> str:
    return "most surprising passages" if temperature is None else f"written at temperature {temperature:g}"


def passage(vocabulary: Vocabulary, sequence: np.ndarray, nats: np.ndarray) -> dict:
    """A sequence as text with the surprise of each character.

    ``sequence``: (length + 1,) tokens. The first one is not predicted. ``nats``: (length,) of the others.

    Returns:
        ``loss``, the mean; ``pieces`` of text, and as many ``nats``: summed over the bytes of a character, first null.
    """
    pieces, sums, waiting = [], [], 0.0
    for text, one in zip(vocabulary.pieces(sequence), [math.nan, *nats.tolist()], strict=True):
        waiting += one
        if text:
            pieces.append(text)
            sums.append(None if math.isnan(waiting) else round(waiting, 3))
            waiting = 0.0
    return {"loss": round(float(nats.mean()), 4), "pieces": pieces, "nats": sums}


def write_text(
    model: keras.Model,
    vocabulary: Vocabulary,
    network: str,
    prompt: np.ndarray,
    *,
    length: int,
    seed: int,
    tokens: int = WRITTEN_TOKENS,
) -> list[dict]:
    """Let a compiled and trained model continue a prompt, uint8 (tokens,), at least one.

    ``network`` is the model's name in the settings, ``length`` that of the sequences that it was trained on.

    Returns:
        For each temperature ``temperature``, ``prompt`` and ``text``, without the prompt.
    """
    step = _by_tokens(model, network, len(vocabulary.names)) or _by_sequences(model, length)
    rng, temperatures = np.random.default_rng(seed), np.array(TEMPERATURES)[:, None]
    for token in prompt:
        outputs = step(np.full(len(TEMPERATURES), token, np.uint8))
    written = np.empty((len(TEMPERATURES), tokens), np.uint8)
    for place in range(tokens):
        logs = outputs.astype(np.float64)
        if kind_trained_on(model) != LOGITS:
            logs = np.log(logs + LEAST_PROBABILITY)
        # The maximum of logarithms with Gumbel noise is a draw (Gumbel 1954). A diverged model draws the first token.
        noise = rng.gumbel(size=logs.shape)
        written[:, place] = np.nan_to_num(logs / temperatures + noise, nan=-np.inf).argmax(axis=1)
        if place + 1 < tokens:
            outputs = step(written[:, place])
    return [
        {"temperature": temperature, "prompt": vocabulary.decode(prompt), "text": vocabulary.decode(row)}
        for temperature, row in zip(TEMPERATURES, written, strict=True)
    ]


def _by_tokens(model: keras.Model, network: str, num_tokens: int) -> Step | None:
    """Predict from one token and the state. None for a model without such a form, as that of user code."""
    if network not in MODELS.builtin:
        return None
    one_step = load_function("model", MODELS[network])((1,), num_tokens, batch_size=len(TEMPERATURES))
    variables = named_variables(one_step)
    for name, trained in named_variables(model).items():
        variables[name].assign(keras.ops.convert_to_numpy(trained))
    call = _called(one_step)
    return lambda tokens: call(tokens[:, None])[:, 0]


def _by_sequences(model: keras.Model, length: int) -> Step:
    """Predict from the last tokens as a sequence."""
    # The places behind the last token are ignored. networks/build.py refuses a model that looks ahead.
    sequences, known, call = np.zeros((len(TEMPERATURES), length), np.uint8), 0, _called(model)

    def step(tokens: np.ndarray) -> np.ndarray:
        nonlocal known
        if known == length:
            sequences[:, :-1] = sequences[:, 1:].copy()
        known = min(known + 1, length)
        sequences[:, known - 1] = tokens
        return call(sequences)[:, known - 1]

    return step


def _called(network: keras.Model) -> Callable[[np.ndarray], np.ndarray]:
    """The model as a function of arrays, with its state."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        traced = tf.function(lambda tokens: network(tokens, training=False))
        return lambda tokens: traced(tf.constant(tokens)).numpy()
    # Compiled once. A plain call would run operation by operation.
    return network.predict_on_batch
