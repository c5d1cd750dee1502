"""The Beam job that writes the examples of a source as sharded TFRecord files. Its entry point is ``job.py``."""
