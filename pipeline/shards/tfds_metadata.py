"""TFDS's metadata: makes a folder of shards a dataset that ``tfds.builder_from_directory`` reads (the shards' aid)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from pipeline.sources import SourceInfo


def shard_name(dataset: str, split: str, shard_index: int, num_shards: int) -> str:
    """TFDS's file name, ``cifar10-train.tfrecord-00003-of-00016``."""
    return f"{dataset.split('/')[0]}-{split}.tfrecord-{shard_index:05d}-of-{num_shards:05d}"


def write_tfds_metadata(
    folder: Path, source: SourceInfo, shard_lengths: Mapping[str, Sequence[int]], frame_bytes: Mapping[str, int]
) -> None:
    """Write dataset_info.json, features.json and the label names beside the shards.

    Args:
        folder: the folder of the shards.
        source: what they were made from.
        shard_lengths: split → number of records of each shard, in order.
        frame_bytes: split → bytes of one record in its file.
    """
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Tensor(shape=source.image_shape, dtype=np.uint8, encoding="bytes"),
            "key": tfds.features.Text(),
            "label": tfds.features.ClassLabel(names=list(source.label_names)),
        }
    )
    template = tfds.core.ShardedFileTemplate(
        data_dir=str(folder), dataset_name=source.dataset.split("/")[0], filetype_suffix="tfrecord"
    )
    tfds.folder_dataset.write_metadata(
        data_dir=str(folder),
        features=features,
        split_infos=[
            tfds.core.SplitInfo(
                name=split,
                shard_lengths=list(lengths),
                num_bytes=sum(lengths) * frame_bytes[split],
                filename_template=template,
            )
            for split, lengths in shard_lengths.items()
        ],
        version=source.version if source.version.count(".") == 2 else f"{source.version}.0.0",
        supervised_keys=("image", "label"),
        check_data=False,
    )
