"""Next-token prediction: the problem of predicting each next character, or byte, of a text.

The inputs of an example are all of its tokens but the last, its labels all but the first. A model starts each example
without state, so the loss of an early token is greater than that of a late one.

``loss`` is the mean surprise in nats, −ln of the probability given to the token, without label smoothing. Bits per
character are that over ln 2, and perplexity is its exponential.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.own_code import is_own
from pipeline.config.refusal import refuse
from pipeline.config.training import TEXT_MODELS, TrainSettings
from pipeline.errors import message
from pipeline.problems.problem import Problem, Shown, Stream, Task
from pipeline.problems.units import NEXT_TOKEN
from pipeline.records.features import TOKENS

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class NextToken(Problem):
    """The model gives a probability to each possible next token, at each place of a sequence."""

    name = NEXT_TOKEN
    columns = (TOKENS,)
    chosen_by = "loss"

    def __init__(self, tokens: str = "") -> None:
        """``tokens``: units.BYTES for a text that is predicted byte by byte."""
        self.tokens = tokens

    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """One token more than predicted."""
        return tuple(manifest["feature_spec"][TOKENS]["shape"])

    def task(self, manifest: Mapping) -> Task:
        """The label of a token is the one after it."""
        (size,) = self.content_shape(manifest)
        num_tokens = len(manifest["label_names"])
        return Task((size - 1,), num_tokens, (size - 1,), num_tokens, self.units.examples)

    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Tokens, and those one place later."""
        tokens = columns[TOKENS]
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        # Only NumPy arrays have it.
        if hasattr(labels, "astype"):
            return inputs, labels.astype("int32")
        import tensorflow as tf

        return inputs, tf.cast(labels, tf.int32)

    def check(self, settings: TrainSettings) -> None:
        """Refuse a network for images, and changes of them."""
        if settings.model not in TEXT_MODELS and not is_own(settings.model):
            refuse(
                "Train",
                "model",
                "a network for text, as the records are",
                settings.model,
                " It takes images. Choose another network, such as char_lstm, or another dataset.",
            )
        if settings.augment:
            refuse("Train", "augment", "nothing, as the records are a text", settings.augment)
        if (views := settings.test_time_augmentation) != "none":
            refuse("Train", "test_time_augmentation", "none, as the records are a text", views)

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
        """See text_evaluation.evaluate."""
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
        shown = {_title(one["temperature"]): one["text"] for one in facts["written"]}
        shown[_title(None)] = "\n\n".join("".join(one["pieces"]) for one in facts["passages"])
        # Indented, so that Markdown shows it as code.
        indent = " " * 4
        return Shown(facts, {name: indent + text.replace("\n", f"\n{indent}") for name, text in shown.items()}, {})


@message
def _title(temperature: float | None) -> str:
    return "most surprising passages" if temperature is None else f"written at temperature {temperature:g}"
