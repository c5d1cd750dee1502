"""Evaluation of a text model on the test split, and text generation.

A model of the pipeline generates text in its one-step form with its state, so a token costs one step. User code
predicts from a sequence of the last tokens. All temperatures form one batch, and the seed determines every draw.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import keras
import numpy as np

from pipeline.models.build import load_function
from pipeline.models.model import LOGITS, assign, kind_trained_on, named_variables, named_weights
from pipeline.problems.problem import EvaluatedRun, Stream, examples_at
from pipeline.records.vocabulary import Vocabulary
from pipeline.settings.training import MODELS

MAX_PASSAGES = 8
#: Divisors of the logits. Values below 1 favor likely tokens.
TEMPERATURES = (0.5, 0.8, 1.0)
PROMPT_TOKENS = 40
GENERATED_TOKENS = 400
# The surprise of a smaller probability is infinite in float32.
MIN_PROBABILITY = 1e-37

#: Tokens uint8 (batch,) → the model's outputs for the next tokens, float32 (batch, vocabulary).
Step = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Surprises:
    """Predictions for a split, in its stored order, without the probabilities, which may not fit in memory.

    ``nats`` is −ln of the probability of the true token, float32 (examples, length), NaN if the model diverged.
    ``correct`` is true if no other token was more probable, bool (examples, length).
    """

    nats: np.ndarray
    correct: np.ndarray


@lru_cache(maxsize=1)
def _with_surprise(model: keras.Model, shape: tuple[int, ...]) -> keras.Model:
    """Model from tokens and labels, int (batch, length), to the nats of each label and 1 if it was predicted.

    The result is float32 (batch, length, 2). It is cached because tracing takes a second.
    """
    # JAX distributes a model over its devices automatically.
    strategy = getattr(model, "distribute_strategy", None)
    with strategy.scope() if strategy else contextlib.nullcontext():
        tokens, labels = keras.Input(shape, dtype="uint8"), keras.Input(shape, dtype="int32")
        outputs = keras.ops.cast(model(tokens, training=False), "float32")
        is_of_logits = kind_trained_on(model) == LOGITS
        logs = keras.ops.log_softmax(outputs) if is_of_logits else keras.ops.log(outputs + MIN_PROBABILITY)
        nats = -keras.ops.take_along_axis(logs, labels[..., None], axis=-1)[..., 0]
        is_predicted = keras.ops.equal(keras.ops.argmax(outputs, axis=-1), labels)
        return keras.Model([tokens, labels], keras.ops.stack([nats, keras.ops.cast(is_predicted, "float32")], axis=-1))


def predict(model: keras.Model, stream: Stream, test_time_augmentation: str = "none") -> Surprises:
    """Return the predictions of one pass over a split. A text has no views."""
    (size,) = stream.split.content_shape
    pairs = stream.evaluation().map(lambda tokens, labels: ((tokens, labels),))
    surprises = _with_surprise(model, (size - 1,)).predict(pairs, verbose=0)
    return Surprises(surprises[..., 0], surprises[..., 1] > 0.5)


def metrics(model: keras.Model, predictions: Surprises) -> dict[str, float]:
    """Return the means over all tokens."""
    return {"loss": float(predictions.nats.mean()), "accuracy": float(predictions.correct.mean())}


def quick_metrics(model: keras.Model, stream: Stream) -> dict[str, float]:
    """Return the means over all tokens of a split."""
    return metrics(model, predict(model, stream))


def evaluate(predictions: Surprises, run: EvaluatedRun) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the contents of evaluation.json. See ``Problem.evaluation``."""
    manifest, settings = run.manifest, run.settings
    vocabulary = Vocabulary(tuple(manifest["label_names"]))
    nats = np.nan_to_num(predictions.nats, nan=-math.log(MIN_PROBABILITY))
    positions = np.argsort(-nats.mean(axis=1), kind="stable")[:MAX_PASSAGES].tolist()
    prompt_position = int(np.random.default_rng(settings.seed).integers(len(nats)))
    examples = examples_at(run.test, [*positions, prompt_position])
    sequences = [np.append(tokens, labels[-1]) for tokens, labels in examples]
    passages = [
        {"index": position, **passage(vocabulary, sequence, nats[position])}
        for position, sequence in zip(positions, sequences, strict=False)
    ]
    prompt = sequences[-1][:PROMPT_TOKENS]
    written = write_text(run.model, vocabulary, settings.model, prompt, length=nats.shape[1], seed=settings.seed)
    loss = float(nats.mean())
    facts = {
        "problem": "next_token",
        "tokens": "bytes" if vocabulary.is_bytes else "characters",
        "vocabulary": list(vocabulary.names),
        "characters": {split: sum(item["label_counts"].values()) for split, item in manifest["splits"].items()},
        "sequence_length": nats.shape[1],
        "num_examples": len(nats),
        "loss": loss,
        "bits": loss / math.log(2),
        "perplexity": math.exp(min(loss, 700)),
        "accuracy": float(predictions.correct.mean()),
        "position_loss": [round(float(item), 5) for item in nats.mean(axis=0)],
        "passages": passages,
        "written": written,
        "data_warnings": [list(warning) for warning in manifest.get("warnings", ())],
    }
    return facts, {}


def passage(vocabulary: Vocabulary, sequence: np.ndarray, nats: np.ndarray) -> dict:
    """Return a sequence as text with the surprise of each character.

    ``sequence`` contains (length + 1,) tokens, of which the first is not predicted. ``nats`` is (length,) of the
    others. Returns the mean ``loss``, the ``pieces`` of text, and ``nats`` per piece, summed over the bytes of a
    character and null for the first.
    """
    pieces, sums, total = [], [], 0.0
    for text, value in zip(vocabulary.pieces(sequence), [math.nan, *nats.tolist()], strict=True):
        total += value
        if text:
            pieces.append(text)
            sums.append(None if math.isnan(total) else round(total, 3))
            total = 0.0
    return {"loss": round(float(nats.mean()), 4), "pieces": pieces, "nats": sums}


def write_text(
    model: keras.Model,
    vocabulary: Vocabulary,
    model_name: str,
    prompt: np.ndarray,
    *,
    length: int,
    seed: int,
    tokens: int = GENERATED_TOKENS,
) -> list[dict]:
    """Continue a prompt, uint8 (tokens,) with at least one token, by a compiled and trained model.

    ``model_name`` is the model's name in the settings. ``length`` is the length of its training sequences. Returns the
    ``temperature``, the ``prompt``, and the ``text`` without the prompt, per temperature.
    """
    step = _by_tokens(model, model_name, len(vocabulary.names)) or _by_sequences(model, length)
    rng, temperatures = np.random.default_rng(seed), np.array(TEMPERATURES)[:, None]
    for token in prompt:
        outputs = step(np.full(len(TEMPERATURES), token, np.uint8))
    written = np.empty((len(TEMPERATURES), tokens), np.uint8)
    for position in range(tokens):
        logs = outputs.astype(np.float64)
        if kind_trained_on(model) != LOGITS:
            logs = np.log(logs + MIN_PROBABILITY)
        # The maximum of logarithms with Gumbel noise is a draw (Gumbel 1954). A diverged model draws the first token.
        noise = rng.gumbel(size=logs.shape)
        written[:, position] = np.nan_to_num(logs / temperatures + noise, nan=-np.inf).argmax(axis=1)
        if position + 1 < tokens:
            outputs = step(written[:, position])
    return [
        {"temperature": temperature, "prompt": vocabulary.decode(prompt), "text": vocabulary.decode(row)}
        for temperature, row in zip(TEMPERATURES, written, strict=True)
    ]


def _by_tokens(model: keras.Model, model_name: str, num_tokens: int) -> Step | None:
    """Return a step that predicts from a token and the state, None for a model without this form, such as user code."""
    if model_name not in MODELS.builtin:
        return None
    one_step = load_function("model", MODELS[model_name])((1,), num_tokens, batch_size=len(TEMPERATURES))
    assign(named_variables(one_step), named_weights(model))
    call = _as_function(one_step)
    return lambda tokens: call(tokens[:, None])[:, 0]


def _by_sequences(model: keras.Model, length: int) -> Step:
    """Return a step that predicts from the last tokens as a sequence."""
    # Positions after the last token are ignored. models/build.py refuses a model that looks ahead.
    sequences, count, call = np.zeros((len(TEMPERATURES), length), np.uint8), 0, _as_function(model)

    def step(tokens: np.ndarray) -> np.ndarray:
        nonlocal count
        if count == length:
            sequences[:, :-1] = sequences[:, 1:].copy()
        count = min(count + 1, length)
        sequences[:, count - 1] = tokens
        return call(sequences)[:, count - 1]

    return step


def _as_function(model: keras.Model) -> Callable[[np.ndarray], np.ndarray]:
    """Return the model as a function of arrays, with its state."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        traced = tf.function(lambda tokens: model(tokens, training=False))
        return lambda tokens: traced(tf.constant(tokens)).numpy()
    # This compiles once. A plain call would run operation by operation.
    return model.predict_on_batch
