"""Form: how the images of a source are stored in its records (the records' aid; decided before anything is read).

``raw`` decodes once and reads fast. Encoded images, of one format or of several, keep the source's own bytes, and the
input stream decodes them.
"""

from dataclasses import dataclass

from pipeline.config.data import RecordsSettings
from pipeline.config.refusal import refuse
from pipeline.records.features import IMAGE, Feature, FeatureSpec

# Up to this side auto stores pixels: an encoded image this small saves little and costs a decoding in each epoch.
RAW_SIDE = 64


@dataclass(frozen=True)
class ImageForm:
    """In what form the images of the records are.

    ``size``: pixels a side, 0 for images as they come; ``resize``: how it is reached, crop, pad or stretch;
    ``encoding``: raw, jpeg, png, or image where formats differ; ``smallest_side``: the least number of pixels that a
    side of any image has before it is resized, 0 where that is not known.
    """

    size: int
    resize: str
    encoding: str
    smallest_side: int = 0

    def shape(self, source: Feature) -> tuple[int | None, ...]:
        """(height, width, channels) of what the input stream gives."""
        return (self.size, self.size, source.shape[2]) if self.size else source.shape

    def stored(self, source: Feature) -> Feature:
        """The feature in the records."""
        shape = self.shape(source) if self.encoding == "raw" else source.shape
        return Feature(shape, "uint8", self.encoding)


def form_of_any(shape: tuple[int, int, int], resize: str) -> ImageForm:
    """The form of encoded images that are to have the shape (height, width, channels) of those in the records.

    Records resize to squares alone: where the shape is none, images are taken as they come, and have to have it.
    """
    return ImageForm(shape[0] if shape[0] == shape[1] else 0, resize, "image")


def choose_form(image: Feature, settings: RecordsSettings, smallest_side: int = 0) -> ImageForm:
    """The form of the settings for images such as a source has.

    Raises:
        SettingsError: they vary in size and no ``image_size`` is given, or are not encoded.
    """
    size, encoding = settings.image_size, settings.encoding
    if not size and None in image.shape:
        refuse("Records", "image_size", "a number of pixels a side, as the dataset's images vary in size", size)
    if encoding != "raw" and image.encoding == "raw":
        if encoding != "auto":
            refuse("Records", "encoding", "raw or auto, as the dataset's images are not encoded", encoding)
        encoding = "raw"
    if encoding == "auto":
        small = (size or max(image.shape[:2])) <= RAW_SIDE
        encoding = "raw" if small else image.encoding
    return ImageForm(size, settings.resize if size else "crop", encoding, smallest_side)


def stored_form(features: FeatureSpec, settings: RecordsSettings, smallest_side: int = 0) -> ImageForm | None:
    """The form of the images of a source with these features; None where it has none.

    Raises:
        SettingsError: as ``choose_form``; or a size is given, and there are no images.
    """
    if IMAGE in features:
        return choose_form(features[IMAGE], settings, smallest_side)
    if settings.image_size:
        refuse("Records", "image_size", "0, as the dataset has no images", settings.image_size)
    return None


def stored_spec(features: FeatureSpec, form: ImageForm | None) -> FeatureSpec:
    """The feature spec of the records of a source with these features."""
    return {**features, IMAGE: form.stored(features[IMAGE])} if form else features
