"""Image classification: an image → its label (a problem; … → stream → **problem** → training → …)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.refusal import refuse
from pipeline.config.training import TEXT_MODELS, TrainSettings
from pipeline.problems import words
from pipeline.problems.problem import Problem, Shown, Stream, Task
from pipeline.problems.units import IMAGE_CLASSIFICATION
from pipeline.records.features import IMAGE, LABEL

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class ImageClassification(Problem):
    """A network gives each image a probability for each label."""

    name = IMAGE_CLASSIFICATION
    columns = (IMAGE, LABEL)
    can_augment = True

    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """Height, width and channels."""
        return tuple(manifest["image"]["shape"])

    def task(self, manifest: Mapping) -> Task:
        """One label for each image."""
        return Task(self.content_shape(manifest), 256, (), len(manifest["label_names"]), self.units.many)

    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """As they lie in the records."""
        return columns[IMAGE], columns[LABEL]

    def check(self, settings: TrainSettings) -> None:
        """Refuse a network for texts."""
        if settings.model in TEXT_MODELS:
            refuse("Train", "model", words.A_NETWORK_FOR_IMAGES, settings.model, words.TAKES_TEXT)

    def predict(self, model: "keras.Model", held_out: Stream, test_time_augmentation: str = "none") -> Any:
        """See image_evaluation.Predictions."""
        from pipeline.problems.image_evaluation import predict

        return predict(model, held_out, test_time_augmentation)

    def figures(self, model: "keras.Model", predictions: Any) -> dict[str, float]:
        """As Keras's evaluate has them."""
        from pipeline.problems.image_evaluation import figures_of

        return figures_of(model, predictions)

    def quick_figures(self, model: "keras.Model", held_out: Stream) -> dict[str, float]:
        """By Keras's evaluate, which keeps no outputs."""
        found = model.evaluate(held_out.evaluation(), verbose=0, return_dict=True)
        return {name: found[name] for name in ("loss", "accuracy")}

    def evaluate(
        self,
        predictions: Any,
        *,
        model: "keras.Model",
        settings: TrainSettings,
        streams: Mapping[str, Stream],
        manifest: Mapping,
        folder: Path,
    ) -> Shown:
        """Confusions, calibration, the most confident mistakes, a few examples."""
        from pipeline.problems.augmented import picture_augmented
        from pipeline.problems.image_evaluation import evaluate

        augmented = picture_augmented(streams["train"], folder)
        facts, tiles = evaluate(predictions, streams["test"], manifest, folder, augmented)
        names = facts["label_names"]
        lines = [
            words.mistake(names[one["label"]], names[one["predicted"]], one["confidence"]) for one in facts["mistakes"]
        ]
        if not lines:
            return Shown(facts, {}, {})
        return Shown(facts, {"mistakes_in_words": "\n".join(f"1. {line}" for line in lines)}, {"mistakes": tiles})
