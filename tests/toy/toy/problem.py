"""A problem: the sum of two digits as a number. The model gives a value, not a distribution over labels."""

from pipeline.problems.problem import CONTENT, TARGET, Problem, Units
from pipeline.records.features import IMAGE, LABEL, VALUES, Task


class DigitSum(Problem):
    """The answer is the nearest integer, and the loss the squared error."""

    name = "digit_sum"
    features = {IMAGE: CONTENT, LABEL: TARGET}
    units = Units("sum", "images", "images")
    chosen_by = "loss"
    evaluated_by = "toy.evaluation:evaluate"

    def content_shape(self, manifest):
        return tuple(manifest["image"]["shape"])

    def default_model(self, content_shape):
        return "toy_dense"

    def task(self, manifest):
        return Task(self.content_shape(manifest), 256, (), 1, VALUES)

    def examples(self, columns):
        return columns[IMAGE], columns[LABEL]

    def loss(self, outputs, label_smoothing):
        import keras

        def squared_error(labels, outputs):
            return keras.ops.square(keras.ops.cast(keras.ops.reshape(labels, (-1,)), "float32") - outputs[..., 0])

        return squared_error

    def metrics(self):
        import keras

        def is_right(labels, outputs):
            labels = keras.ops.cast(keras.ops.reshape(labels, (-1,)), "float32")
            return keras.ops.equal(labels, keras.ops.round(outputs[..., 0]))

        return [keras.metrics.MeanMetricWrapper(is_right, name="accuracy")]

    def answers(self, outputs):
        return outputs[..., 0].round()
