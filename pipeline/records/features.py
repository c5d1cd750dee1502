"""Feature specs: the names, shapes and encodings of an example's features, and how records store images.

Plain data. The source declares the spec of its examples, the manifest of the records the spec of what was written.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.settings.data import RecordsSettings
from pipeline.settings.setting_error import refuse

IMAGE, LABEL, KEY = "image", "label", "key"

# Of images.
CHANNELS = (1, 3, 4)
# Up to this side auto stores pixels: an encoded image this small saves little and costs a decoding in each epoch.
RAW_SIDE = 64


@dataclass(frozen=True)
class Feature:
    """One feature.

    ``shape``: None in the place of a size that varies; () is a scalar. ``dtype`` is that of the decoded values.
    ``encoding``: "raw" for the values' own bytes (row-major, little-endian; a scalar int64 is an ``int64_list``),
    "jpeg" or "png" for an encoded image, "image" for one whose format is detected from its content, "utf8" for text.
    """

    shape: tuple[int | None, ...]
    dtype: str
    encoding: str = "raw"

    @property
    def is_fixed(self) -> bool:
        """Whether it takes as many bytes in every record; a key does in the records of one split."""
        return self.encoding == "raw" and None not in self.shape

    @property
    def is_sequence(self) -> bool:
        """Whether examples are cut out of one long sequence, and each value but the first is a label."""
        return self.encoding == "raw" and len(self.shape) == 1

    @property
    def num_bytes(self) -> int:
        """Bytes of the uint8 values of a fixed shape."""
        return math.prod(self.shape)


FeatureSpec = Mapping[str, Feature]


# What the outputs of a model mean.
DISTRIBUTION, VALUES = "distribution", "values"


@dataclass(frozen=True)
class Task:
    """Shapes and ranges that a model needs.

    ``input_shape`` is that of one example, uint8, and ``inputs`` the upper bound of its values. ``label_shape`` is that
    of one example's labels, int32, () for one label. A model gives ``num_labels`` outputs for each, which are a
    "distribution" over that many labels, or "values".
    """

    input_shape: tuple[int, ...]
    inputs: int
    label_shape: tuple[int, ...]
    num_labels: int
    meaning: str = DISTRIBUTION

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Of one example: a number for each label of each prediction."""
        return (*self.label_shape, self.num_labels)

    @property
    def predictions_per_example(self) -> int:
        """Number of labels of an example."""
        return math.prod(self.label_shape)


def image_spec(shape: tuple[int | None, ...], encoding: str = "raw") -> FeatureSpec:
    """The spec of image classification: uint8 images (height, width, channels), a label and a key."""
    return {
        IMAGE: Feature(tuple(shape), "uint8", encoding),
        KEY: Feature((), "string", "utf8"),
        LABEL: Feature((), "int64"),
    }


def content_name(names: Iterable[str]) -> str:
    """The name of the feature that a model gets as input: the one that is neither label nor key."""
    return next(name for name in names if name not in (LABEL, KEY))


def is_fixed(spec: FeatureSpec) -> bool:
    """Whether all records of one split have one length."""
    return all(feature.is_fixed for name, feature in spec.items() if name != KEY)


def spec_to_json(spec: FeatureSpec) -> dict[str, dict]:
    """Plain JSON data, by name."""
    return {name: {**vars(spec[name]), "shape": list(spec[name].shape)} for name in sorted(spec)}


def spec_from_json(stored: Mapping[str, Mapping]) -> FeatureSpec:
    """The spec that ``spec_to_json`` wrote."""
    return {name: Feature(**{**one, "shape": tuple(one["shape"])}) for name, one in stored.items()}


@dataclass(frozen=True)
class ImageForm:
    """How records store images.

    ``size``: pixels per side, 0 to keep each image's own size. ``resize``: crop, pad or stretch. ``encoding``: raw,
    jpeg, png, or image for mixed formats. ``smallest_side``: the smallest side of any image before it is resized,
    0 if it is not known.
    """

    size: int
    resize: str
    encoding: str
    smallest_side: int = 0

    def shape(self, source: Feature) -> tuple[int | None, ...]:
        """(height, width, channels) of the images in the input stream."""
        return (self.size, self.size, source.shape[2]) if self.size else source.shape

    def stored(self, source: Feature) -> Feature:
        """The feature in the records."""
        shape = self.shape(source) if self.encoding == "raw" else source.shape
        return Feature(shape, "uint8", self.encoding)


def form_of_any(shape: tuple[int, int, int], resize: str) -> ImageForm:
    """The form that brings encoded images to ``shape`` (height, width, channels), that of a model's input.

    Images are resized to squares only. For another shape they must already have it.
    """
    return ImageForm(shape[0] if shape[0] == shape[1] else 0, resize, "image")


def stored_form(features: FeatureSpec, settings: RecordsSettings, smallest_side: int = 0) -> ImageForm | None:
    """The form that the settings choose for the images of a source with these features; None for a text.

    Raises:
        SettingsError: images vary in size and no ``image_size`` is given, or are not encoded; a size is given for a
            text.
    """
    size, encoding = settings.image_size, settings.encoding
    if IMAGE not in features:
        if size:
            refuse("Records", "image_size", "0, as the dataset has no images", size)
        return None
    image = features[IMAGE]
    if not size and None in image.shape:
        refuse("Records", "image_size", "a number of pixels a side, as the dataset's images vary in size", size)
    if encoding not in ("raw", "auto") and image.encoding == "raw":
        refuse("Records", "encoding", "raw or auto, as the dataset's images are not encoded", encoding)
    if encoding == "auto":
        small = (size or max(image.shape[:2])) <= RAW_SIDE
        encoding = "raw" if small else image.encoding
    return ImageForm(size, settings.resize if size else "crop", encoding, smallest_side)


def stored_spec(features: FeatureSpec, form: ImageForm | None) -> FeatureSpec:
    """The feature spec of the records of a source with these features."""
    return {**features, IMAGE: form.stored(features[IMAGE])} if form else features
