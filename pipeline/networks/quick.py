"""Quick: what a CPU computes sooner than by Keras's own operations, for training (the networks' aid)."""

import keras

from pipeline.networks import activation, convolution, normalisation, pooling


def quicken(model: keras.Model) -> None:
    """Let the network's layers, or their gradients, be computed by what is quicker on a CPU, where they fit.

    The layers remain Keras's own, of the same class and configuration: whatever is saved of the network, or cloned
    from it, knows nothing of this.
    """
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            quicken(layer)
        else:
            for kind in (convolution, pooling, normalisation, activation):
                kind.quicken(layer)
