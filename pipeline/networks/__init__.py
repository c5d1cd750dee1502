"""Keras models by name, one module each, with their optimizers, losses and CPU kernels.

``build.py`` builds a model, ``recipes.py`` has optimizer, schedule and loss, and ``own.py`` loads user code instead of
either. User code imports ``adapted_by`` from here.
"""

from pipeline.networks.model import adapted_by

__all__ = ["adapted_by"]
