"""Image classification, the problem of predicting the label of an image."""

from collections.abc import Mapping

from pipeline.problems.problem import CONTENT, TARGET, Problem, Units
from pipeline.records.features import IMAGE, LABEL

# Smallest side of images for a model with weights from photographs.
_PHOTO_SIDE = 96


class ImageClassification(Problem):
    """The model assigns a probability per label to each image."""

    name = "image_classification"
    features = {IMAGE: CONTENT, LABEL: TARGET}
    can_augment = True
    has_classes = True
    evaluated_by = "pipeline.problems.image_classification.evaluation:evaluate"
    units = Units("image", "images", "images")

    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """Return height, width and channels."""
        return tuple(manifest["image"]["shape"])

    def default_model(self, content_shape: tuple[int | None, ...]) -> str:
        """Return a pretrained model for photographs."""
        height, width, _ = content_shape
        return "efficientnet_lite0" if min(height or 0, width or 0) >= _PHOTO_SIDE else "baseline_cnn"
