"""Text: the networks for a text, and the same for one token at a time (networks' aid).

They give logits.
"""

from collections.abc import Callable

import keras

from pipeline.networks.char_lstm import char_lstm, char_lstm_large, shakespeare_lstm

TEXT_NETWORKS: dict[str, Callable[..., keras.Model]] = {
    "char_lstm": char_lstm,
    "char_lstm_large": char_lstm_large,
    "shakespeare_lstm": shakespeare_lstm,
}


def one_step_network(name: str, num_labels: int, *, batch_size: int) -> keras.Model | None:
    """A network that takes one token and remembers those before: uint8 (batch_size, 1) → (batch_size, 1, num_labels).

    It has the variables of the network of this name, under the same names. None of a network that has no such form, as
    one of the user's own.
    """
    return TEXT_NETWORKS[name]((1,), num_labels, batch_size=batch_size) if name in TEXT_NETWORKS else None
