"""Training of a model on the input streams, and its evaluation. ``train.py`` is the stage on one page."""
