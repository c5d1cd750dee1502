"""Next-token prediction: the problem of predicting each next character, or byte, of a text.

The inputs of an example are all of its tokens but the last, its labels all but the first. ``loss`` is the mean surprise
in nats, −ln of the probability given to the token, without label smoothing. A model starts each example without state,
so the loss of an early token is greater than that of a late one.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from pipeline.config.own_code import is_own
from pipeline.config.refusal import refuse
from pipeline.config.training import TEXT_MODELS, TrainSettings
from pipeline.problems.problem import Problem, Task
from pipeline.problems.units import NEXT_TOKEN
from pipeline.records.features import TOKENS

if TYPE_CHECKING:
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
        return Task((size - 1,), num_tokens, (size - 1,), num_tokens)

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
            refuse("Train", "model", "a network for text such as char_lstm, as the records are", settings.model)
        if settings.augment:
            refuse("Train", "augment", "nothing, as the records are a text", settings.augment)
        if (views := settings.test_time_augmentation) != "none":
            refuse("Train", "test_time_augmentation", "none, as the records are a text", views)

    @property
    def evaluation(self) -> ModuleType:
        """See text_evaluation.py."""
        from pipeline.problems import text_evaluation

        return text_evaluation
