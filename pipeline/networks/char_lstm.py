"""Character LSTMs: networks for a text, each next token from those before it (… → stream → training → …).

Built with a ``batch_size`` they take one token at a time and remember what came before: the same variables, under the
same names, write text (problems/writing.py).
"""

import keras


def char_lstm(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """One layer of 256: on two cores five times the characters a second of 2 × 512, and a lower loss for it.

    Its embedding begins with a standard deviation of 1. With Keras's own, uniform up to 0.05, the layer hardly tells
    characters apart at first: after 120 steps of 128 sequences the test loss was 2.450 nats instead of 2.076.
    A fifth of its outputs dropped keeps it from learning a text of a million characters by heart.
    """
    return _one_layer("char_lstm", input_shape, num_labels, units=256, dropout=0.2, batch_size=batch_size)


def char_lstm_large(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """One layer of 512, of whose outputs half are dropped: a lower loss for 3.5 times the operations."""
    return _one_layer("char_lstm_large", input_shape, num_labels, units=512, dropout=0.5, batch_size=batch_size)


def shakespeare_lstm(input_shape: tuple[int], num_labels: int, *, batch_size: int | None = None) -> keras.Model:
    """As published (tensorflow/tpu's notebook of Shakespeare's plays): embedding of 512, two layers of 512."""
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
            # Logits, which are exact where a probability would round to 0, and float32: bfloat16 has three digits.
            layers.Dense(num_labels, dtype="float32", name="logits"),
        ],
        name=name,
    )
