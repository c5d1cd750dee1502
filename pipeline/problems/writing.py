"""Writing: text that a trained network writes, token by token (next_token's aid).

A network of ours is built once more for one token at a time, with the trained variables and a memory of its own, so
that a token costs one step. One of the user's own is asked with the last tokens as a sequence, at the cost of one each.
All temperatures are written at once, as a batch; every draw follows from the seed.
"""

from collections.abc import Callable

import keras
import numpy as np

from pipeline.networks.char_lstm import one_step_network
from pipeline.networks.model import named_variables, trained_by_logits
from pipeline.records.vocabulary import Vocabulary

#: Logits are divided by it: below 1 likely tokens become likelier, at 1 all is as the network says.
TEMPERATURES = (0.5, 0.8, 1.0)
PROMPT_TOKENS = 40
WRITTEN_TOKENS = 400
_LEAST_PROBABILITY = 1e-37

#: Tokens uint8 (batch,) → logarithms of probabilities float32 (batch, vocabulary) of the next.
Step = Callable[[np.ndarray], np.ndarray]


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
    """Let a network continue a prompt.

    Args:
        model: compiled and trained.
        vocabulary: of its tokens.
        network: its name in the settings.
        prompt: uint8 (tokens,), one at least.
        length: of the sequences that it was trained on.
        seed: of the draws.
        tokens: how many are written.

    Returns:
        For each temperature ``temperature``, ``prompt`` and ``text``, without the prompt.
    """
    step = _stateful(model, network, len(vocabulary.names)) or _by_sequences(model, length)
    rng, temperatures = np.random.default_rng(seed), np.array(TEMPERATURES)[:, None]
    logs = np.empty(0)
    for token in prompt:
        logs = step(np.full(len(TEMPERATURES), token, np.uint8))
    written = np.empty((len(TEMPERATURES), tokens), np.uint8)
    for place in range(tokens):
        # The maximum of logarithms with Gumbel noise is a draw (Gumbel 1954); a diverged network draws the first token.
        noise = rng.gumbel(size=logs.shape)
        written[:, place] = np.nan_to_num(logs / temperatures + noise, nan=-np.inf).argmax(axis=1)
        if place + 1 < tokens:
            logs = step(written[:, place])
    return [
        {"temperature": temperature, "prompt": vocabulary.decode(prompt), "text": vocabulary.decode(row)}
        for temperature, row in zip(TEMPERATURES, written, strict=True)
    ]


def _stateful(model: keras.Model, network: str, num_tokens: int) -> Step | None:
    """By a network that remembers; None where the network has no such form."""
    one_step = one_step_network(network, num_tokens, batch_size=len(TEMPERATURES))
    if one_step is None:
        return None
    variables = named_variables(one_step)
    for name, trained in named_variables(model).items():
        variables[name].assign(keras.ops.convert_to_numpy(trained))
    logarithms, call = _logarithms(model), _called(one_step)
    return lambda tokens: logarithms(call(tokens[:, None])[:, 0])


def _by_sequences(model: keras.Model, length: int) -> Step:
    """By sequences of the tokens until now, the last ones where they are more than one holds.

    What is behind the last of them is ignored: a network that sees what is to come is refused (networks/own.py).
    """
    sequences, logarithms, known = np.zeros((len(TEMPERATURES), length), np.uint8), _logarithms(model), 0
    call = _called(model)

    def step(tokens: np.ndarray) -> np.ndarray:
        nonlocal known
        if known == length:
            sequences[:, :-1] = sequences[:, 1:].copy()
        known = min(known + 1, length)
        sequences[:, known - 1] = tokens
        return logarithms(call(sequences)[:, known - 1])

    return step


def _called(network: keras.Model) -> Callable[[np.ndarray], np.ndarray]:
    """A network as a function of arrays; what it remembers it keeps."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        traced = tf.function(lambda tokens: network(tokens, training=False))
        return lambda tokens: traced(tf.constant(tokens)).numpy()
    # Compiled once, where a call of the network itself would compute operation by operation.
    return network.predict_on_batch


def _logarithms(model: keras.Model) -> Callable[[np.ndarray], np.ndarray]:
    if trained_by_logits(model):
        return lambda outputs: outputs.astype(np.float64)
    return lambda outputs: np.log(outputs.astype(np.float64) + _LEAST_PROBABILITY)
