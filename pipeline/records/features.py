"""Feature spec: what an Example holds, name by name (the records' aid; pure data).

The source says it of its examples, the records' manifest of what was written, the stream of what it gives. Records
whose features all have one length are arrays of rows (fixed.py), others are parsed (example.py).
"""

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass

IMAGE, LABEL, TOKENS, KEY = "image", "label", "tokens", "key"

_BYTES = {"uint8": 1, "uint16": 2, "int32": 4, "int64": 8, "float32": 4}
DTYPES = (*_BYTES, "string")
ENCODINGS = ("raw", "jpeg", "png", "image", "utf8")
# Of images.
CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Feature:
    """One feature.

    ``shape``: None where it varies from example to example; () is a scalar. ``dtype`` is that of the decoded values.
    ``encoding``: "raw" for the values' own bytes (row-major, little-endian; a scalar int64 is an ``int64_list``),
    "jpeg" or "png" for an encoded image, "image" for one whose format its own content tells, "utf8" for text.
    """

    shape: tuple[int | None, ...]
    dtype: str
    encoding: str = "raw"

    @property
    def is_fixed(self) -> bool:
        """Whether it takes as many bytes in every record; a key does in the records of one split."""
        return self.encoding == "raw" and None not in self.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of the decoded values, of a fixed shape."""
        return math.prod(self.shape) * _BYTES[self.dtype]

    def to_json(self) -> dict:
        """Plain JSON data."""
        return {"shape": list(self.shape), "dtype": self.dtype, "encoding": self.encoding}


FeatureSpec = Mapping[str, Feature]


def image_spec(shape: tuple[int | None, ...], encoding: str = "raw") -> FeatureSpec:
    """The spec of image classification: uint8 images (height, width, channels), a label and a key."""
    return {
        IMAGE: Feature(tuple(shape), "uint8", encoding),
        KEY: Feature((), "string", "utf8"),
        LABEL: Feature((), "int64"),
    }


def text_spec(length: int | None = None) -> FeatureSpec:
    """The spec of a text: tokens, numbers in its vocabulary, and a key; ``length`` None for the text as a whole."""
    return {KEY: Feature((), "string", "utf8"), TOKENS: Feature((length,), "uint8")}


def content_name(names: Container[str]) -> str:
    """Of the features of an example the one that it is about."""
    return IMAGE if IMAGE in names else TOKENS


def is_fixed(spec: FeatureSpec) -> bool:
    """Whether all records of one split have one length."""
    return all(feature.is_fixed for name, feature in spec.items() if name != KEY)


def spec_to_json(spec: FeatureSpec) -> dict[str, dict]:
    """Plain JSON data, by name."""
    return {name: spec[name].to_json() for name in sorted(spec)}


def spec_from_json(stored: Mapping[str, Mapping]) -> FeatureSpec:
    """The spec that ``spec_to_json`` wrote."""
    return {
        name: Feature(tuple(one["shape"]), one["dtype"], one.get("encoding", "raw")) for name, one in stored.items()
    }
