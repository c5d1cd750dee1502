"""Training and evaluation of a model. ``train.py`` outlines the Train stage."""
