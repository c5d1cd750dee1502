"""Image classification: the problem of predicting the label of an image."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.refusal import refuse
from pipeline.config.training import TEXT_MODELS, TrainSettings
from pipeline.errors import message
from pipeline.problems.problem import Problem, Shown, Stream, Task
from pipeline.problems.units import IMAGE_CLASSIFICATION
from pipeline.records.features import IMAGE, LABEL

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class ImageClassification(Problem):
    """The model gives each image a probability for each label."""

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
        """As stored in the records."""
        return columns[IMAGE], columns[LABEL]

    def check(self, settings: TrainSettings) -> None:
        """Refuse a network for texts."""
        if settings.model in TEXT_MODELS:
            refuse(
                "Train",
                "model",
                "a network for images, as the records are",
                settings.model,
                " It takes a text. Choose another network or another dataset.",
            )

    def predict(self, model: "keras.Model", held_out: Stream, test_time_augmentation: str = "none") -> Any:
        """See image_evaluation.Predictions."""
        from pipeline.problems.image_evaluation import predict

        return predict(model, held_out, test_time_augmentation)

    def figures(self, model: "keras.Model", predictions: Any) -> dict[str, float]:
        """As Keras's evaluate returns them."""
        from pipeline.problems.image_evaluation import figures_of

        return figures_of(model, predictions)

    def quick_figures(self, model: "keras.Model", held_out: Stream) -> dict[str, float]:
        """By Keras's evaluate, which stores no outputs."""
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
        """See image_evaluation.evaluate."""
        from pipeline.problems.image_evaluation import evaluate, picture_augmented

        augmented = picture_augmented(streams["train"], folder)
        facts, tiles = evaluate(predictions, streams["test"], manifest, folder, augmented)
        names = facts["label_names"]
        if not facts["mistakes"]:
            return Shown(facts, {}, {})
        lines = [_mistake(names[one["label"]], names[one["predicted"]], one["confidence"]) for one in facts["mistakes"]]
        return Shown(facts, {"mistakes_in_words": "\n".join(lines)}, {"mistakes": tiles})


@message
def _mistake(label: str, predicted: str, confidence: float) -> str:
    return f"1. {label} taken for {predicted}, {confidence:.3f}"
