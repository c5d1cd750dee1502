"""Rows: the position of each feature in records of one length (NumPy only).

A file of such records is an array of rows of bytes, and a feature is a column of it. The records' manifest contains the
positions, so that a file can be mapped into memory and read without TensorFlow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pipeline.errors import SettingsError
from pipeline.records.features import KEY, LABEL, FeatureSpec, spec_from_json

VARINT_BITS = 7


@dataclass(frozen=True)
class Rows:
    """``places``: the bytes of each feature in a framed record of ``frame_bytes``; a label is a varint."""

    spec: FeatureSpec
    frame_bytes: int
    places: Mapping[str, slice]

    @classmethod
    def of_manifest(cls, folder: Path, manifest: Mapping, split: str) -> "Rows":
        """The rows of a split of the records in ``folder``, from their manifest.

        Raises:
            SettingsError: the records differ in length, or an earlier version wrote them.
        """
        about = manifest["splits"][split].get("rows")
        if about is None:
            raise SettingsError(
                f"{folder}: expected records of one length, with their places in the manifest: these differ in length, "
                'or an earlier version made them. Run "make pipeline" to make them again.'
            )
        places = {name: slice(*place) for name, place in about["places"].items()}
        return cls(spec_from_json(manifest["feature_spec"]), about["frame_bytes"], places)

    def to_json(self) -> dict:
        """Plain JSON data for the manifest."""
        places = {name: [place.start, place.stop] for name, place in self.places.items()}
        return {"frame_bytes": self.frame_bytes, "places": places}

    @cached_property
    def values(self) -> dict[str, slice]:
        """The places of all features but the key, which training never reads."""
        return {name: place for name, place in self.places.items() if name != KEY}

    @cached_property
    def label_weights(self) -> np.ndarray:
        """int32 (bytes of a label,): the weight of each of the varint's bytes, without its highest bit."""
        place = self.places[LABEL]
        return (1 << VARINT_BITS * np.arange(place.stop - place.start)).astype(np.int32)

    def columns(self, frames: np.ndarray) -> dict[str, np.ndarray]:
        """All features but the key of framed records, uint8 (batch, frame_bytes); see ``decoded``."""
        return {name: self.decoded(name, frames[:, place]) for name, place in self.values.items()}

    def decoded(self, name: str, values: np.ndarray) -> np.ndarray:
        """The uint8 values (batch, …) of a feature from its bytes, uint8 (batch, bytes). A label is int32 (batch,)."""
        if name == LABEL:
            return (values & 0x7F).astype(np.int32) @ self.label_weights
        return values.reshape(-1, *self.spec[name].shape)
