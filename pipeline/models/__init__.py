"""Keras models by name, one module each, with their optimizers, losses and CPU kernels.

``build.py`` finds models and recipes, also in user code. User code imports ``adapted_by`` from here.
"""

from pipeline.models.model import adapted_by

__all__ = ["adapted_by"]
