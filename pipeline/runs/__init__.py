"""The folder of a run: its record, metrics, weights, exports and determinism check."""
