"""LSTMs for text, which predict each next token from those before it. They give logits.

Built with a ``batch_size`` they take one token at a time and keep their state, with the same variable names. The
pipeline writes text with that form (problems/text_evaluation.py).
"""

from collections.abc import Callable

import keras


def char_lstm(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """One layer of 256 units: on two cores five times the characters per second of 2 × 512.

    The embedding starts with a standard deviation of 1. With Keras's default, uniform up to 0.05, the test loss after
    120 steps of 128 sequences was 2.450 nats instead of 2.076. Dropout keeps it from memorizing a million characters.
    """
    return _one_layer("char_lstm", input_shape, num_labels, units=256, dropout=0.2, batch_size=batch_size)


def char_lstm_large(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """One layer of 512 units with half of its outputs dropped: a lower loss for 3.5 times the operations."""
    return _one_layer("char_lstm_large", input_shape, num_labels, units=512, dropout=0.5, batch_size=batch_size)


def shakespeare_lstm(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """As published in tensorflow/tpu's notebook of Shakespeare's plays: embedding of 512, two layers of 512."""
    return _stack("shakespeare_lstm", input_shape, num_labels, embedding=512, units=(512, 512), batch_size=batch_size)


def _one_layer(
    name: str, input_shape: tuple[int], num_labels: int, *, units: int, dropout: float, batch_size: int | None
) -> keras.Model:
    return _stack(
        name,
        input_shape,
        num_labels,
        embedding=64,
        units=(units,),
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
        dropout=dropout,
        batch_size=batch_size,
    )


def _stack(
    name: str,
    input_shape: tuple[int],
    num_labels: int,
    *,
    embedding: int,
    units: tuple[int, ...],
    batch_size: int | None,
    embeddings_initializer: str | keras.initializers.Initializer = "uniform",
    dropout: float = 0.0,
) -> keras.Model:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input(input_shape, batch_size=batch_size, dtype="uint8"),
            layers.Embedding(num_labels, embedding, embeddings_initializer, name="embedding"),
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


TEXT_NETWORKS: dict[str, Callable[..., keras.Model]] = {
    "char_lstm": char_lstm,
    "char_lstm_large": char_lstm_large,
    "shakespeare_lstm": shakespeare_lstm,
}


def one_step_network(name: str, num_labels: int, *, batch_size: int) -> keras.Model | None:
    """The model of this name for one token at a time: uint8 (batch_size, 1) → (batch_size, 1, num_labels).

    Its variables have the names of the trained model. None for a name without such a form, as that of user code.
    """
    return TEXT_NETWORKS[name]((1,), num_labels, batch_size=batch_size) if name in TEXT_NETWORKS else None
