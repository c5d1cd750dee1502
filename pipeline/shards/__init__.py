"""Shards: a Beam job writes the examples of a source as sharded TFRecord files. ``job.py`` is the entry point."""
