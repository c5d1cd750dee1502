"""Verification of a whole artifact against its manifest, for the command ``verify``."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipeline.artifacts.manifest import check_contents, read_manifest
from pipeline.errors import DamagedArtifactError
from pipeline.records.example import add_labels, parse_batch
from pipeline.records.features import spec_from_json

_READ_BATCH = 1_000
_READ_BUFFER_BYTES = 8 * 2**20


def verify_artifact(folder: Path) -> None:
    """Check size and sha256 of every file, and for records every CRC, the number of examples and the label counts.

    The DamagedArtifactError names the first file or count that differs from the manifest.
    """
    manifest = read_manifest(folder)
    check_contents(folder, manifest)
    for split in manifest.get("splits", {}):
        _verify_split(folder, manifest, split)


def _verify_split(folder: Path, manifest: Mapping, split: str) -> None:
    # TensorFlow reads the records like any other program and checks every CRC.
    files = [str(folder / entry["name"]) for entry in manifest["files"] if entry.get("split") == split]
    spec = spec_from_json(manifest["feature_spec"])
    records = tf.data.TFRecordDataset(files, buffer_size=_READ_BUFFER_BYTES).batch(_READ_BATCH)
    counts = np.zeros((1, len(manifest["label_names"])), np.int64)
    try:
        for serialized in records:
            columns = {name: values.numpy() for name, values in parse_batch(serialized, spec).items()}
            add_labels(counts, np.zeros(len(serialized), int), columns)
    except (tf.errors.OpError, ValueError) as error:
        raise DamagedArtifactError(f"{folder}: cannot read the {split} records: {error}") from error
    label_counts = dict(zip(manifest["label_names"], counts[0].tolist(), strict=True))
    if label_counts != manifest["splits"][split]["label_counts"]:
        expected = manifest["splits"][split]["label_counts"]
        raise DamagedArtifactError(f"{folder}: expected {split} labels {expected}, got {label_counts} in the records.")
