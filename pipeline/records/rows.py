"""Rows: where each feature lies in records of one length (the records' aid; NumPy alone).

The records' manifest says it, so that whoever can map a file into memory can read the records: they are rows of bytes,
and a feature is a column of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipeline.records.features import KEY, LABEL, FeatureSpec, spec_from_json

VARINT_BITS = 7


@dataclass(frozen=True)
class Rows:
    """``places``: the bytes of each feature in a framed record of ``frame_bytes``; a label is a varint."""

    spec: FeatureSpec
    frame_bytes: int
    places: Mapping[str, slice]

    @classmethod
    def of_manifest(cls, manifest: Mapping, split: str) -> "Rows":
        """The rows of a split as the records' manifest describes them."""
        about = manifest["splits"][split]["rows"]
        places = {name: slice(*place) for name, place in about["places"].items()}
        return cls(spec_from_json(manifest["feature_spec"]), about["frame_bytes"], places)

    def to_json(self) -> dict:
        """Plain JSON data for the manifest."""
        places = {name: [place.start, place.stop] for name, place in self.places.items()}
        return {"frame_bytes": self.frame_bytes, "places": places}

    @property
    def values(self) -> dict[str, slice]:
        """The places of all but the keys: nothing behind the records asks for those."""
        return {name: place for name, place in self.places.items() if name != KEY}

    @cached_property
    def label_weights(self) -> np.ndarray:
        """int32 (bytes of a label,): what each of the varint's bytes counts, without its highest bit."""
        place = self.places[LABEL]
        return (1 << VARINT_BITS * np.arange(place.stop - place.start)).astype(np.int32)

    def decoded(self, name: str, values: np.ndarray) -> np.ndarray:
        """The values of a feature.

        Args:
            name: of the feature.
            values: its bytes in framed records, uint8 (batch, bytes).

        Returns:
            (batch, …) of its shape and dtype, the label int32; of bytes a view.
        """
        if name == LABEL:
            return (values & 0x7F).astype(np.int32) @ self.label_weights
        feature = self.spec[name]
        values = values if feature.dtype == "uint8" else np.ascontiguousarray(values).view(feature.dtype)
        return values.reshape(-1, *feature.shape)
