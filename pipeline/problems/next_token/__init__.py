"""Next-token prediction, the problem of predicting each next character or byte of a text.

The inputs of an example are all of its tokens but the last, its labels all but the first. ``loss`` is the mean surprise
in nats, −ln of the probability of the true token, without label smoothing. A model starts each example without state,
so early tokens have a greater loss than late ones.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pipeline.problems.problem import BYTES, CONTENT, Problem, Units
from pipeline.records.features import Task

if TYPE_CHECKING:
    import tensorflow as tf

TOKENS = "tokens"


class NextToken(Problem):
    """The model assigns a probability to each possible next token, at each position of a sequence."""

    name = "next_token"
    features = {TOKENS: CONTENT}
    models = ("char_lstm", "char_lstm_large", "shakespeare_lstm")
    evaluated_by = "pipeline.problems.next_token.evaluation:evaluate"
    chosen_by = "loss"

    @classmethod
    def of_records(cls, manifest: Mapping) -> "NextToken":
        """Return the problem with the kind of tokens in the vocabulary."""
        # This imports NumPy, which Luigi's process avoids.
        from pipeline.records.vocabulary import Vocabulary

        return cls(BYTES if Vocabulary(tuple(manifest["label_names"])).is_bytes else "")

    @property
    def units(self) -> Units:
        """Characters or bytes."""
        return Units("byte" if self.tokens == BYTES else "character", "sequences", "texts")

    def task(self, manifest: Mapping) -> Task:
        """Return the task with the next token as label."""
        (size,) = self.content_shape(manifest)
        num_tokens = len(manifest["label_names"])
        return Task((size - 1,), num_tokens, (size - 1,), num_tokens)

    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Return tokens, and the tokens one position later."""
        tokens = columns[TOKENS]
        inputs, labels = tokens[:, :-1], tokens[:, 1:]
        # Only NumPy arrays have this method.
        if hasattr(labels, "astype"):
            return inputs, labels.astype("int32")
        import tensorflow as tf

        return inputs, tf.cast(labels, tf.int32)
