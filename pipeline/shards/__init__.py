"""Shards: records → sharded TFRecord files (source → records → shards → …).

``order.py`` says where an example goes, ``job.py`` is the Beam job that puts it there, ``tfds_metadata.py`` makes the
finished folder a dataset of TensorFlow Datasets.
"""

from pipeline.shards.job import Job, make_options, make_runner, write_records
from pipeline.shards.order import example_order, shard_bounds

__all__ = ["Job", "example_order", "make_options", "make_runner", "shard_bounds", "write_records"]
