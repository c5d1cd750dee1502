"""Augmentation: random changes of the images a network is trained on (… → shards → **stream** → training → …).

    draws.py      random numbers that depend on seed, epoch and example alone
    pixels.py     the operations on a batch of images
    mixing.py     mixup: each example and the one before it in the epoch
    augment.py    the operations of a setting, one after the other

The setting is read in pipeline/config/augment.py. Keras's layers draw one set of numbers for a whole batch from a state
that each call advances: what an image becomes then depends on its place in the batch and on the batches before, and is
another after a resume. So the operations are ours, and Keras's are not used.

They run in the input stream, on uint8 images, in the threads that make batches while a step computes: the network, its
saved file and its evaluation know nothing of them. On a CPU no difference from the network's first layers could be
measured (docs/LOG.md), and an accelerator computes meanwhile.
"""

from pipeline.augmentation.augment import Augmentation
from pipeline.augmentation.mixing import MIXED_WIDTH

__all__ = ["MIXED_WIDTH", "Augmentation"]
