"""Quick: gradients that a CPU computes sooner than by TensorFlow's own kernels, for training (the networks' aid)."""

import keras

from pipeline.networks import convolution, pooling


def quicken(model: keras.Model) -> None:
    """Let the network's convolutions and poolings compute their gradients by what is quicker on a CPU, where they fit.

    The layers remain Keras's own, of the same class and configuration: whatever is saved of the network, or cloned
    from it, knows nothing of this.
    """
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            quicken(layer)
        else:
            convolution.quicken(layer)
            pooling.quicken(layer)
