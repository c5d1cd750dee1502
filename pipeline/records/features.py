"""Feature specs, which contain the names, shapes and encodings of an example's features, and the storage of images.

A source declares the spec of its examples. The manifest of the records contains the spec of the stored features.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.errors import refuse
from pipeline.settings.data import RecordsSettings
from pipeline.settings.schema import AUTO

IMAGE, TEXT, LABEL, KEY = "image", "text", "label", "key"
SPLITS = ("train", "validation", "test")
#: File beside the shards with a name per test example in stored order, the path of its file or else its key.
TEST_NAMES = "test_names.csv"
#: File beside the shards with a row per example that has an identical copy, if there are any.
DUPLICATES_NAME, NEAR_DUPLICATES_NAME = "duplicates.csv", "near_duplicates.csv"

# Bytes of a value of a raw feature.
_VALUE_BYTES = {"uint8": 1, "int64": 8, "float32": 4}
# Possible numbers of channels of an image.
CHANNELS = (1, 3, 4)
# Up to this side, auto stores pixels. Encoding saves little space, and decoding would cost time in each epoch.
RAW_SIDE = 64
# Quality of JPEGs that are stored smaller than their files, and the shorter side that auto gives them per pixel of
# image_size (docs/LOG.md).
_STORE_QUALITY, _STORE_RATIO = 92, 1.15
#: Smallest, median and largest shorter side of the images of a source, in pixels. 0 if unknown.
ShorterSides = tuple[int, int, int]
# Sides that [Records] image_size = auto chooses for photographs, and for images above RAW_SIDE that are smaller.
_PHOTO_SIDE, _MIDDLE_SIDE = 160, 128


@dataclass(frozen=True)
class Feature:
    """The shape and the type of the decoded values of a feature. None stands for a size that varies, () for a scalar.

    ``encoding`` is "raw" for the bytes of the values, row-major and little-endian. A raw scalar int64 is an
    ``int64_list``. It is "jpeg", "png" or "image" (any format) for an encoded image, and "utf8" for a text.
    """

    shape: tuple[int | None, ...]
    dtype: str
    encoding: str = "raw"

    @property
    def is_fixed(self) -> bool:
        """Whether every record has the same number of bytes for the feature. Keys have it per split."""
        return self.encoding == "raw" and None not in self.shape

    @property
    def is_number(self) -> bool:
        """Whether a value is one integer, as the label of a class."""
        return self.dtype == "int64" and not self.shape

    @property
    def num_bytes(self) -> int:
        """Bytes of the values of a fixed shape."""
        return math.prod(self.shape) * _VALUE_BYTES[self.dtype]


FeatureSpec = Mapping[str, Feature]


# Meanings of the outputs of a model.
DISTRIBUTION, LABELS, VALUES = "distribution", "labels", "values"


@dataclass(frozen=True)
class Task:
    """Shapes and ranges of the inputs and outputs of a model.

    An example has the ``input_shape``, uint8, with values below ``inputs``. Its labels have the ``label_shape``, int32.
    () means one label. There are ``num_labels`` outputs for each label. Their ``meaning`` is a "distribution" over the
    labels, a probability for each of several "labels", or "values". ``means`` and standard ``deviations`` are those of
    each value in the train split, and empty without values.
    """

    input_shape: tuple[int, ...]
    inputs: int
    label_shape: tuple[int, ...]
    num_labels: int
    meaning: str = DISTRIBUTION
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the outputs for one example."""
        return (*self.label_shape, self.num_labels)

    @property
    def predictions_per_example(self) -> int:
        """Number of labels of an example."""
        return math.prod(self.label_shape)


def image_spec(
    shape: tuple[int | None, ...], encoding: str = "raw", label: Feature = Feature((), "int64")
) -> FeatureSpec:
    """The spec of uint8 images (height, width, channels) with labels and keys."""
    return {IMAGE: Feature(tuple(shape), "uint8", encoding), KEY: Feature((), "string", "utf8"), LABEL: label}


def content_name(names: Iterable[str]) -> str:
    """Name of the feature that is the input of a model, neither label nor key."""
    return next(name for name in names if name not in (LABEL, KEY))


def is_fixed(spec: FeatureSpec) -> bool:
    """Whether all records of a split have the same length."""
    return all(feature.is_fixed for name, feature in spec.items() if name != KEY)


def spec_to_json(spec: FeatureSpec) -> dict[str, dict]:
    """Convert a spec to JSON data."""
    return {name: {**vars(spec[name]), "shape": list(spec[name].shape)} for name in sorted(spec)}


def spec_from_json(stored: Mapping[str, Mapping]) -> FeatureSpec:
    """The inverse of ``spec_to_json``."""
    return {name: Feature(**{**fields, "shape": tuple(fields["shape"])}) for name, fields in stored.items()}


@dataclass(frozen=True)
class ImageForm:
    """Storage of images in records. Sizes are in pixels.

    ``size`` is that of both sides, and 0 keeps the size of each image. ``resize`` is "crop", "pad" or "stretch", and
    ``encoding`` "raw", "jpeg", "png", or "image" for mixed formats. ``smallest_side`` is that of any image before the
    resize, and 0 if unknown. Much larger images are reduced to the shorter side ``store_side`` with the JPEG quality
    ``store_quality``. 0 reduces none.
    """

    size: int
    resize: str
    encoding: str
    smallest_side: int = 0
    store_side: int = 0
    store_quality: int = 0

    @classmethod
    def of_manifest(cls, manifest: Mapping) -> "ImageForm | None":
        """Read the form of the images from the manifest of the records. None for a text."""
        image = manifest.get("image")
        return cls(**{name: image[name] for name in image.keys() - {"shape"}}) if image else None

    def shape(self, source: Feature) -> tuple[int | None, ...]:
        """(height, width, channels) of the images in the input stream."""
        return (self.size, self.size, source.shape[2]) if self.size else source.shape

    def num_bytes(self, file_bytes: int) -> int:
        """Upper bound of the mean bytes of an encoded image, whose file has ``file_bytes`` in the mean."""
        # As pixels of three bytes, twice as long as wide. Encoded images need less, also those that are not reduced.
        return min(file_bytes, 6 * self.store_side**2) if self.store_side else file_bytes


def form_of_any(shape: tuple[int, int, int], resize: str) -> ImageForm:
    """The form that resizes encoded images to ``shape`` (height, width, channels), the input of a model.

    Only squares are resized. For any other shape, the images must already have that shape.
    """
    return ImageForm(shape[0] if shape[0] == shape[1] else 0, resize, "image")


def chosen_image_size(features: FeatureSpec, shorter_sides: ShorterSides) -> int:
    """The value of [Records] image_size for ``auto``. 0 keeps the size of the images."""
    if IMAGE not in features:
        return 0
    height, width, _ = features[IMAGE].shape
    if height and width and max(height, width) <= RAW_SIDE:
        return 0
    # The sides of images of TFDS are unknown. Such datasets are photographs.
    median = min(height, width) if height and width else shorter_sides[1] or _PHOTO_SIDE
    if median > RAW_SIDE:
        return _PHOTO_SIDE if median >= _MIDDLE_SIDE else _MIDDLE_SIDE
    return max(16, median - median % 8)


def stored_form(
    features: FeatureSpec, settings: RecordsSettings, shorter_sides: ShorterSides = (0, 0, 0)
) -> ImageForm | None:
    """The form of the images of a source with these features. None for a text.

    SettingsError: the images vary in size and ``image_size`` is 0, or a text has an ``image_size``. Or the images are
    not encoded, but ``encoding`` or ``store_side`` requires it.
    """
    size, encoding = settings.image_size, settings.encoding
    if size == AUTO:
        size = chosen_image_size(features, shorter_sides)
    if IMAGE not in features:
        if size:
            refuse("Records", "image_size", "0, because the dataset has no images", size)
        return None
    image = features[IMAGE]
    if not size and None in image.shape:
        refuse("Records", "image_size", "auto or pixels per side, because the images of the dataset vary in size", size)
    if encoding not in ("raw", "auto") and image.encoding == "raw":
        refuse("Records", "encoding", "raw or auto, because the images of the dataset are not encoded", encoding)
    if encoding == "auto":
        small = (size or max(image.shape[:2])) <= RAW_SIDE
        encoding = "raw" if small else image.encoding
    # Alpha would be lost, and images without an image_size must keep their shape.
    can_shrink, side = size and encoding != "raw" and image.shape[2] < CHANNELS[-1], 0
    if settings.store_side == "auto" and can_shrink and size > RAW_SIDE:
        side = round(_STORE_RATIO * size)
    elif settings.store_side not in ("auto", "original"):
        side = int(settings.store_side)
        if not can_shrink or side < size:
            refuse("Records", "store_side", "auto, original, or for encoded images image_size or more", str(side))
    resize = settings.resize if size else "crop"
    return ImageForm(size, resize, encoding, shorter_sides[0], side, _STORE_QUALITY if side else 0)


def stored_spec(features: FeatureSpec, form: ImageForm | None) -> FeatureSpec:
    """The spec of the records of a source with these features."""
    if not form:
        return features
    shape = form.shape(features[IMAGE]) if form.encoding == "raw" else features[IMAGE].shape
    return {**features, IMAGE: Feature(shape, "uint8", form.encoding)}
