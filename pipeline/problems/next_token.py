"""Next token: a text → each next character, or byte (a problem; … → stream → **problem** → training → …).

An example holds a token more than it predicts: its inputs are all but the last, its labels all but the first. A network
starts each example without memory, so that the loss of an early token is greater than of a late one; shapes are static.

Figures are those of plain labels: ``loss`` is the mean surprise in nats, −ln of the probability that a token which came
was given, also where training smooths labels. Bits a character are that over ln 2, perplexity is its exponential.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.own_code import is_own
from pipeline.config.refusal import refuse
from pipeline.config.training import TEXT_MODELS, TrainSettings
from pipeline.problems import words
from pipeline.problems.problem import Problem, Shown, Stream, Task
from pipeline.problems.units import NEXT_TOKEN
from pipeline.records.features import TOKENS

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class NextToken(Problem):
    """A network gives each token that may come next a probability, at each place of a sequence."""

    name = NEXT_TOKEN
    columns = (TOKENS,)
    chosen_by = "loss"

    def __init__(self, tokens: str = "") -> None:
        """``tokens``: units.BYTES of a text that is predicted byte by byte."""
        self.tokens = tokens

    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """One token more than is predicted."""
        return tuple(manifest["feature_spec"][TOKENS]["shape"])

    def task(self, manifest: Mapping) -> Task:
        """A label for each token of a sequence: the one after it."""
        (size,) = self.content_shape(manifest)
        num_tokens = len(manifest["label_names"])
        return Task((size - 1,), num_tokens, (size - 1,), num_tokens, self.units.examples)

    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Tokens, and those one place later."""
        tokens = columns[TOKENS]
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        # Of NumPy's arrays alone.
        if hasattr(labels, "astype"):
            return inputs, labels.astype("int32")
        import tensorflow as tf

        return inputs, tf.cast(labels, tf.int32)

    def check(self, settings: TrainSettings) -> None:
        """Refuse a network for images, and changes of them."""
        if settings.model not in TEXT_MODELS and not is_own(settings.model):
            refuse("Train", "model", words.A_NETWORK_FOR_TEXT, settings.model, words.TAKES_IMAGES)
        if settings.augment:
            refuse("Train", "augment", words.NOTHING_TO_AUGMENT, settings.augment)
        if settings.test_time_augmentation != "none":
            refuse("Train", "test_time_augmentation", words.NO_VIEWS, settings.test_time_augmentation)

    def predict(self, model: "keras.Model", held_out: Stream, test_time_augmentation: str = "none") -> Any:
        """See text_evaluation.Surprises."""
        from pipeline.problems.text_evaluation import predict

        return predict(model, held_out)

    def figures(self, model: "keras.Model", predictions: Any) -> dict[str, float]:
        """Of all tokens alike."""
        return {"loss": float(predictions.nats.mean()), "accuracy": float(predictions.right.mean())}

    def quick_figures(self, model: "keras.Model", held_out: Stream) -> dict[str, float]:
        """The same."""
        return self.figures(model, self.predict(model, held_out))

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
        """Loss by place, the most surprising passages, and text that the network writes."""
        from pipeline.problems.text_evaluation import evaluate

        facts = evaluate(
            predictions,
            model=model,
            network=settings.model,
            seed=settings.seed,
            test=streams["test"],
            manifest=manifest,
            folder=folder,
        )
        # As Markdown shows what is written as it is.
        shown = {words.written_at(one["temperature"]): one["text"] for one in facts["written"]}
        shown[words.SURPRISING] = "\n\n".join("".join(one["pieces"]) for one in facts["passages"])
        return Shown(facts, {name: words.as_code(text) for name, text in shown.items()}, {})
