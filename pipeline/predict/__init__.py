"""Predictions of files that a run was not trained on. ``job.py`` is the Beam job; images and texts have own rows."""
