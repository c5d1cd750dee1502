"""Metadata files, so that ``tfds.builder_from_directory`` can read a folder of shards."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds

from pipeline.records.features import KEY, LABEL, Feature, FeatureSpec, content_name
from pipeline.sources import SourceInfo

# A JSON list of the tokens of a text, in order.
VOCABULARY_NAME = "vocabulary.json"


def shard_name(dataset: str, split: str, shard_index: int, num_shards: int) -> str:
    """The name of a shard for TFDS, such as ``cifar10-train.tfrecord-00003-of-00016``."""
    return f"{dataset.split('/')[0]}-{split}.tfrecord-{shard_index:05d}-of-{num_shards:05d}"


def write_tfds_metadata(folder: Path, source: SourceInfo, spec: FeatureSpec, shards: Sequence[Mapping]) -> None:
    """Write dataset_info.json, features.json, and the label names or the vocabulary into the folder."""
    lengths, num_bytes = defaultdict(list), Counter()
    for shard in shards:
        lengths[shard["split"]].append(shard["num_records"])
        num_bytes[shard["split"]] += (folder / shard["name"]).stat().st_size
    template = tfds.core.ShardedFileTemplate(
        data_dir=str(folder), dataset_name=source.dataset.split("/")[0], filetype_suffix="tfrecord"
    )
    tfds.folder_dataset.write_metadata(
        data_dir=str(folder),
        features=tfds.features.FeaturesDict({name: _connector(name, spec[name], source) for name in sorted(spec)}),
        split_infos=[
            tfds.core.SplitInfo(
                name=split, shard_lengths=lengths[split], num_bytes=num_bytes[split], filename_template=template
            )
            for split in lengths
        ],
        version=source.version if source.version.count(".") == 2 else f"{source.version}.0.0",
        supervised_keys=(content_name(spec), LABEL) if LABEL in spec else None,
        check_data=False,
    )
    if LABEL not in spec:
        (folder / VOCABULARY_NAME).write_text(json.dumps(source.label_names), encoding="utf-8")


def _connector(name: str, feature: Feature, source: SourceInfo) -> tfds.features.FeatureConnector:
    if name == KEY:
        return tfds.features.Text()
    if feature.is_number:
        return tfds.features.ClassLabel(names=list(source.label_names))
    if feature.encoding == "raw":
        return tfds.features.Tensor(shape=feature.shape, dtype=np.dtype(feature.dtype), encoding="bytes")
    # Without a format, TFDS detects it from the content of each image.
    encoding = None if feature.encoding == "image" else feature.encoding
    return tfds.features.Image(shape=feature.shape, dtype=np.uint8, encoding_format=encoding)
