"""Quick: what a CPU computes sooner than by Keras's own operations, for training (the networks' aid).

A network is evaluated, and its operations are counted, as Keras computes it: so its figures are those of what is saved.
"""

import contextlib
from collections.abc import Callable, Iterator

import keras

# Of all threads: TensorFlow traces a step on several replicas in threads of its own.
_is_as_keras = False


def quicken(model: keras.Model) -> None:
    """Let the network's layers, or their gradients, be computed by what is quicker on a CPU, where they fit.

    The layers remain Keras's own, of the same class and configuration: whatever is saved of the network, or cloned
    from it, knows nothing of this.
    """
    # Not above: they are TensorFlow's operations.
    from pipeline.networks import activation, convolution, normalisation, pooling

    kinds = (activation, convolution, normalisation, *(() if _has_one_dnn() else (pooling,)))
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            quicken(layer)
        for kind in kinds:
            if quick := kind.quick_call(layer):
                setattr(layer, kind.CALLED, _unless_as_keras(getattr(layer, kind.CALLED), quick))


@contextlib.contextmanager
def as_keras() -> Iterator[None]:
    """What is traced meanwhile computes by Keras's own operations."""
    global _is_as_keras
    before, _is_as_keras = _is_as_keras, True
    try:
        yield
    finally:
        _is_as_keras = before


def _has_one_dnn() -> bool:
    """Whether TensorFlow computes by oneDNN: by default on processors with AVX512_VNNI or newer instructions."""
    # Private, and TensorFlow's only answer to it.
    from tensorflow.python.util import _pywrap_util_port

    return _pywrap_util_port.IsMklEnabled()


def _unless_as_keras(plain: Callable, quick: Callable) -> Callable:
    return lambda *args, **kwargs: (plain if _is_as_keras else quick)(*args, **kwargs)
