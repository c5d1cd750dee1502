"""Keras models, training recipes, optimizers, losses and CPU kernels.

``build.py`` finds models and training recipes by name, also in user code. User code imports ``adapted_by`` from here.
"""

from pipeline.models.model import adapted_by

__all__ = ["adapted_by"]
