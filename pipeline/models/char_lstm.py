"""LSTMs for text, which predict each next token from those before it. They give logits.

Built with a ``batch_size`` they take one token at a time and keep their state, with the same variable names. The
pipeline writes text with that form (problems/next_token/evaluation.py).
"""

import keras

from pipeline.models.model import gives_logits


@gives_logits
def char_lstm(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """One layer of 256 units: on two cores five times the characters per second of 2 × 512.

    The embedding starts with a standard deviation of 1. With Keras's default, uniform up to 0.05, the test loss after
    120 steps of 128 sequences was 2.450 nats instead of 2.076. Dropout keeps it from memorizing a million characters.
    """
    return _lstm("char_lstm", input_shape, num_labels, batch_size, units=(256,), dropout=0.2)


@gives_logits
def char_lstm_large(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """One layer of 512 units with half of its outputs dropped: a lower loss for 3.5 times the operations."""
    return _lstm("char_lstm_large", input_shape, num_labels, batch_size, units=(512,), dropout=0.5)


@gives_logits
def shakespeare_lstm(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """As published in tensorflow/tpu's notebook of Shakespeare's plays: embedding of 512, two layers of 512."""
    return _lstm(
        "shakespeare_lstm", input_shape, num_labels, batch_size, units=(512, 512), embedding=512, spread="uniform"
    )


def _lstm(
    name: str,
    input_shape: tuple[int],
    num_labels: int,
    batch_size: int | None,
    *,
    units: tuple[int, ...],
    embedding: int = 64,
    spread: str = "normal",
    dropout: float = 0.0,
) -> keras.Model:
    layers = keras.layers
    initializer = keras.initializers.RandomNormal(stddev=1.0) if spread == "normal" else spread
    return keras.Sequential(
        [
            keras.Input(input_shape, batch_size=batch_size, dtype="uint8"),
            layers.Embedding(num_labels, embedding, initializer, name="embedding"),
            *(
                layers.LSTM(size, return_sequences=True, stateful=batch_size is not None, name=f"lstm_{place}")
                for place, size in enumerate(units, start=1)
            ),
            *([layers.Dropout(dropout, name="dropout")] if dropout else []),
            # Logits in float32, because bfloat16 has three digits.
            layers.Dense(num_labels, dtype="float32", name="logits"),
        ],
        name=name,
    )
