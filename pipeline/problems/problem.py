"""Protocol of learning problems. Importing it needs no numerical library.

``columns`` contain a batch of records by feature, without keys. ``manifest`` is that of the records.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pipeline.errors import refuse
from pipeline.problems import PROBLEMS, problem_of_records
from pipeline.records.features import ImageForm, Task, is_fixed, spec_from_json
from pipeline.settings.schema import AUTO
from pipeline.settings.training import HEAD, MODEL_DEFAULTS, MODELS, TrainSettings

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from pipeline.streams.numpy_stream import Split

#: Files of an evaluation in a run's folder. The last three are sheets of pictures.
EVALUATION_NAME = "evaluation.json"
PREDICTIONS_NAME = "test_predictions.csv"
TEST_IMAGES_NAME, EXAMPLES_NAME, AUGMENTED_NAME = "test_images.png", "examples.png", "augmented.png"
#: Roles of the features of records. Inputs, and for some problems targets, come from the content.
CONTENT, TARGET = "content", "target"
#: Tokens of a text with more characters than a vocabulary can contain.
BYTES = "bytes"
# Of [Train] global_batch_size = auto.
_SMALLEST_BATCH = 16


@dataclass(frozen=True)
class Units:
    """Names of a prediction (``singular``), of the ``examples`` of a batch, and of ``files`` for predictions."""

    singular: str
    examples: str
    files: str

    @property
    def plural(self) -> str:
        """Name of several predictions."""
        return f"{self.singular}s"

    @property
    def rate(self) -> str:
        """Unit of the throughput."""
        return f"{self.plural}/s"


NEUTRAL = Units("example", "examples", "files")


class Stream(Protocol):
    """Methods and attributes of an input stream that a problem uses."""

    split: Any
    augmentation: Any
    global_batch_size: int

    def evaluation(self) -> "tf.data.Dataset":
        """Return one pass over the split in its stored order."""


@dataclass(frozen=True)
class EvaluatedRun:
    """Data for an evaluation. ``manifest`` is that of the records, ``folder`` that of the run."""

    model: Any
    settings: TrainSettings
    train: Stream
    test: Stream
    manifest: Mapping
    folder: Path
    validation: Stream | None = None


def examples_at(stream: Stream, positions: Sequence[int]) -> list[tuple["np.ndarray", "np.ndarray"]]:
    """Return inputs and labels of the examples at these positions of the stored order, in one pass."""
    examples, start = {}, 0
    for inputs, labels in stream.evaluation().as_numpy_iterator():
        batch_positions = [position for position in positions if start <= position < start + len(inputs)]
        examples |= {position: (inputs[position - start], labels[position - start]) for position in batch_positions}
        start += len(inputs)
    return [examples[position] for position in positions]


def open_split(folder: Path, manifest: Mapping, name: str) -> "Split":
    """Open a split of the records in ``folder``, with the inputs and labels of their problem, see ``Split``."""
    from pipeline.records.rows import Rows
    from pipeline.streams.numpy_stream import Split

    problem, spec = problem_of_records(manifest), spec_from_json(manifest["feature_spec"])
    shards = [entry for entry in manifest["files"] if entry.get("split") == name]
    shards.sort(key=itemgetter("shard_index"))
    return Split(
        name=name,
        files=tuple(str(folder / shard["name"]) for shard in shards),
        num_examples=manifest["splits"][name]["num_examples"],
        features=tuple(problem.features),
        decode=problem.examples,
        content_shape=problem.content_shape(manifest),
        form=ImageForm.of_manifest(manifest),
        spec=spec,
        predictions_per_example=problem.task(manifest).predictions_per_example,
        layout=Rows.of_manifest(manifest, name) if is_fixed(spec) else None,
        shard_examples=tuple(shard["num_records"] for shard in shards),
    )


class Problem:
    """A learning problem. It defines inputs, targets, loss, metrics and evaluation, and ``results.py`` its reports."""

    #: Name in records and runs, and key of ``PROBLEMS``.
    name: ClassVar[str]
    #: Features of the records that the stream reads → roles, content first.
    features: ClassVar[Mapping[str, str]]
    #: Models of the pipeline for this problem only.
    models: ClassVar[tuple[str, ...]] = ()
    #: Whether [Train] augment and test_time_augmentation apply.
    can_augment: ClassVar[bool] = False
    #: Whether [Train] class_weight applies, because each example has one label.
    has_classes: ClassVar[bool] = False
    #: Module of ``evaluation`` and a function in it, by which the code digest finds the module.
    evaluated_by: ClassVar[str]
    #: Metric of the validation split that selects an epoch, the greatest "accuracy" or the least "loss".
    chosen_by: ClassVar[str] = "accuracy"

    def __init__(self, tokens: str = "") -> None:
        """Set the kind of tokens, BYTES for a text that is predicted byte by byte, as in a run's record."""
        self.tokens = tokens

    @classmethod
    def of_records(cls, manifest: Mapping) -> "Problem":
        """Return the problem of these records."""
        return cls()

    @property
    def units(self) -> Units:
        """Names of the units that the problem counts."""
        return NEUTRAL

    def content_shape(self, manifest: Mapping) -> tuple[int, ...]:
        """Return the shape of an example's content in memory, uint8. By default, it is as stored."""
        return tuple(manifest["feature_spec"][next(iter(self.features))]["shape"])

    def task(self, manifest: Mapping) -> Task:
        """Return shapes and ranges for a model of these records. By default, an example has bytes and one label."""
        return Task(self.content_shape(manifest), 256, (), len(manifest["label_names"]))

    def examples(self, columns: Mapping[str, "tf.Tensor"]) -> tuple["tf.Tensor", "tf.Tensor"]:
        """Return inputs uint8 (batch, *input_shape) and labels (batch, *label_shape), as NumPy if columns are.

        By default, these are the content and the target as stored in the records.
        """
        content, target = self.features
        return columns[content], columns[target]

    def default_model(self, content_shape: tuple[int | None, ...]) -> str:
        """Return the model for [Train] model = auto. SettingsError: the problem has no model."""
        if not self.models:
            refuse("Train", "model", f"the name of a model for {self.units.files}", AUTO)
        return self.models[0]

    def chosen(self, settings: TrainSettings, content_shape: tuple[int | None, ...], num_examples: int) -> dict:
        """Return a value for each setting that is ``auto``, for so many examples of the train split."""
        model = self.default_model(content_shape) if settings.model == AUTO else settings.model
        defaults = MODEL_DEFAULTS.get(model, MODEL_DEFAULTS[""])
        # A power of two with at least ten steps per epoch. Smaller batches are less accurate (docs/LOG.md).
        size = min(defaults.global_batch_size, 2 ** (max(1, num_examples // 10).bit_length() - 1))
        size = max(size, min(_SMALLEST_BATCH, num_examples))
        replicas = settings.replicas * settings.processes
        fewest, most = defaults.epochs
        epochs = min(max(round(defaults.examples / num_examples), fewest), most)
        values = {
            "model": model,
            "training_recipe": defaults.training_recipe,
            "global_batch_size": -(-size // replicas) * replicas,
            "epochs": 1 if settings.fine_tune == HEAD else epochs,
            "augment": "",
        }
        return {name: value for name, value in values.items() if getattr(settings, name) == AUTO}

    def check(self, settings: TrainSettings) -> None:
        """Refuse settings of [Train] for another problem. Raises SettingsError."""
        other_problems = [PROBLEMS.load(name) for name in PROBLEMS.builtin if name != self.name]
        is_other = self.models and MODELS.is_ours(settings.model) and settings.model not in self.models
        files = self.units.files
        if is_other or any(settings.model in other.models for other in other_problems):
            refuse(
                *("Train", "model"),
                f"a model for {files}{' such as '.join(['', *self.models[:1]])}, like the records",
                settings.model,
            )
        if settings.class_weight != "none" and not self.has_classes:
            weight = settings.class_weight
            refuse("Train", "class_weight", f"none, as {files} of these records have no single label each", weight)
        if settings.augment and not self.can_augment:
            refuse("Train", "augment", f"nothing for records of {files}", settings.augment)
        if (views := settings.test_time_augmentation) != "none" and not self.can_augment:
            refuse("Train", "test_time_augmentation", f"none for records of {files}", views)

    def loss(self, outputs: str, label_smoothing: float) -> Callable:
        """Return a function (labels, outputs) → float32 loss per prediction. ``outputs`` is a kind of outputs."""
        from pipeline.models.model import Crossentropy

        return Crossentropy(outputs, label_smoothing)

    def metrics(self) -> list:
        """Return the Keras metrics of training. One of them is called "accuracy", if the problem has one."""
        return ["accuracy"]

    def linear_targets(self, labels: "np.ndarray", num_outputs: int) -> tuple["np.ndarray", str]:
        """Return targets float32 (examples, outputs) of a linear last layer, and its link, see fine_tuning.py."""
        import numpy as np

        return np.eye(num_outputs, dtype=np.float32)[labels], "softmax"

    def answers(self, outputs: "np.ndarray") -> "np.ndarray":
        """Convert outputs of a model (batch, …) to answers with the shape and type of the labels."""
        return outputs.argmax(axis=-1)

    @property
    def evaluation(self) -> ModuleType:
        """The module that evaluates a compiled model. It imports Keras, so it is imported on use.

        - predict(model, stream, test_time_augmentation) returns predictions for a split, in its stored order.
        - metrics(model, predictions) returns their mean ``loss`` and ``accuracy``.
        - quick_metrics(model, stream) returns the same for an epoch whose predictions are not used further.
        - evaluate(predictions, run) returns the contents of evaluation.json of an ``EvaluatedRun``, and images for
          TensorBoard by name, uint8 (n, height, width, channels). It may write more files into the run's folder.
        """
        return importlib.import_module(self.evaluated_by.partition(":")[0])


def units_of(problem: str, tokens: str = "") -> Units:
    """Return the units of a problem, neutral ones for an unknown name. ``tokens`` is the field of a run's record."""
    return PROBLEMS.load(problem)(tokens).units if problem in PROBLEMS else NEUTRAL


def common_units(units: Iterable[Units]) -> Units:
    """Return the units if they are all the same, or else neutral ones."""
    distinct = set(units)
    return distinct.pop() if len(distinct) == 1 else NEUTRAL
