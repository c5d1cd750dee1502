"""Positions of the features in records of one length.

A file of such records is an array of rows of bytes, and a feature is a range of columns. The manifest of the records
contains the positions, so that programs can map a file into memory and read it without TensorFlow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.records.features import KEY, LABEL, FeatureSpec, spec_from_json

VARINT_BITS = 7


@dataclass(frozen=True)
class Rows:
    """The bytes of each feature in a framed record of ``frame_bytes``, as ``slices``. An integer is a varint."""

    spec: FeatureSpec
    frame_bytes: int
    slices: Mapping[str, slice]

    @classmethod
    def of_manifest(cls, manifest: Mapping, split: str) -> "Rows":
        """Read the positions for a split from the manifest of records of one length."""
        layout = manifest["splits"][split]["rows"]
        slices = {name: slice(*bounds) for name, bounds in layout["places"].items()}
        return cls(spec_from_json(manifest["feature_spec"]), layout["frame_bytes"], slices)

    def to_json(self) -> dict:
        """JSON data for the manifest."""
        bounds = {name: [columns.start, columns.stop] for name, columns in self.slices.items()}
        return {"frame_bytes": self.frame_bytes, "places": bounds}

    @cached_property
    def values(self) -> dict[str, slice]:
        """Slices of all features except the key, which training never reads."""
        return {name: columns for name, columns in self.slices.items() if name != KEY}

    @cached_property
    def label_weights(self) -> np.ndarray:
        """Weight of each byte of a label's varint without its highest bit, int32 (bytes,)."""
        columns = self.slices[LABEL]
        return (1 << VARINT_BITS * np.arange(columns.stop - columns.start)).astype(np.int32)

    def columns(self, frames: np.ndarray) -> dict[str, np.ndarray]:
        """Decode all features except the key from framed records, uint8 (batch, frame_bytes)."""
        return {name: self.decoded(name, frames[:, columns]) for name, columns in self.values.items()}

    def decoded(self, name: str, values: np.ndarray) -> np.ndarray:
        """Decode a feature from its bytes, uint8 (batch, bytes). Integers are int32 (batch,), others (batch, …)."""
        feature = self.spec[name]
        if feature.is_number:
            return (values & 0x7F).astype(np.int32) @ self.label_weights
        if feature.dtype != "uint8":
            values = np.ascontiguousarray(values).view(feature.dtype)
        return values.reshape(-1, *feature.shape)
