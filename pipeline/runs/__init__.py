"""Folder of a run, with its record, metrics, weights, exports and determinism check."""
