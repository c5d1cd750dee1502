"""Settings of runs: [Train], [Export]."""

import re
import urllib.parse
from collections.abc import Collection
from typing import Annotated

from pipeline.registry import Registry
from pipeline.settings.schema import (
    NOT_IN_IDENTITY,
    SEED,
    Rule,
    StageSettings,
    integer,
    number,
    number_or_text,
    one_of,
    registered,
    where,
)
from pipeline.settings.setting_error import closest, refuse

#: Model → its builder, which imports Keras.
MODELS = Registry(
    "models",
    {
        "baseline_cnn": "pipeline.models.convnets:baseline_cnn",
        "compact_convnet": "pipeline.models.convnets:compact_convnet",
        "small_convnet": "pipeline.models.convnets:small_convnet",
        "airbench_convnet": "pipeline.models.airbench_convnet:airbench_convnet",
        "airbench_convnet_small": "pipeline.models.airbench_convnet:airbench_convnet_small",
        "airbench_convnet_large": "pipeline.models.airbench_convnet:airbench_convnet_large",
        "mnist_dense": "pipeline.models.convnets:mnist_dense",
        "mnist_cnn": "pipeline.models.convnets:mnist_cnn",
        "fashion_cnn": "pipeline.models.convnets:fashion_cnn",
        "flowers_convnet": "pipeline.models.convnets:flowers_convnet",
        "char_lstm": "pipeline.models.char_lstm:char_lstm",
        "char_lstm_large": "pipeline.models.char_lstm:char_lstm_large",
        "shakespeare_lstm": "pipeline.models.char_lstm:shakespeare_lstm",
    },
)
#: Recipe → its ``networks.recipes.Recipe``, or a function that makes an optimizer.
RECIPES = Registry(
    "recipes",
    {
        "baseline": "pipeline.models.training_recipes:BASELINE",
        "onecycle": "pipeline.models.training_recipes:ONECYCLE",
        "adam": "pipeline.models.training_recipes:ADAM",
        "lamb": "pipeline.models.training_recipes:LAMB",
        "adam_cosine": "pipeline.models.training_recipes:ADAM_COSINE",
        "muon": "pipeline.models.training_recipes:MUON",
    },
)
# Operation → its default number and the valid ones. None if it takes no number.
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
TEST_TIME_AUGMENTATION = ("none", "flip", "flip_translate")
# The learning rate, weight decay or label smoothing of the recipe. 0 is a value of its own for two of them.
OF_THE_RECIPE = -1.0
# Of [Train] tpu_address, and of the environment variable TPU_NAME.
TPU_ADDRESS = "a TPU's name, local, or grpc://host:port with a port from 1 to 65535"

#: Of [Train] process_id: as the environment says.
FROM_ENVIRONMENT = -1
MAX_PROCESSES = 4096

_MAX_PORT = 65535
_RECIPES_OWN = {"other": OF_THE_RECIPE, "meaning": "the recipe's own"}


def parse_augment(text: str) -> tuple[tuple[str, float | None], ...]:
    """The operations of the setting and their numbers, in the order given, as in "flip, crop:4".

    Raises:
        SettingsError: an operation is unknown or occurs twice, or its number is invalid.
    """
    operations: dict[str, float | None] = {}
    for item in filter(None, re.split(r"[,\s]+", text)):
        name, colon, written = item.partition(":")
        if name not in OPERATIONS:
            meant = item.replace("=", ":")
            hint = f" Did you mean {meant!r}?" if meant != item else closest(name, [*OPERATIONS])
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
    """The setting in the one form of all texts with the same operations."""
    items = parse_augment(text)
    return ", ".join(name if number is None else f"{name}:{number:g}" for name, number in items)


def names_tpu(address: str) -> bool:
    """Whether a text can be the name or the address of a TPU. Nothing is contacted."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", address):
        return True
    try:
        parts = urllib.parse.urlsplit(address)
        return parts.scheme == "grpc" and bool(parts.hostname and parts.port) and address.endswith(f"//{parts.netloc}")
    except ValueError:
        return False


def split_address(address: str) -> tuple[str, int]:
    """Host and port. SettingsError: it is no such address."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdigit() or not 0 < int(port) <= _MAX_PORT:
        refuse("Train", "coordinator_address", f"host:port, a port from 1 to {_MAX_PORT}", address)
    return host, int(port)


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f" {error}."


def _augment_problem(text: str) -> str | None:
    parse_augment(text)


class TrainSettings(StageSettings, section="Train"):
    """The model, how it is trained, and the hardware."""

    model: Annotated[str, registered(MODELS, "my_package.networks:build")] = "baseline_cnn"
    """Model to train (docs/reference/settings.md#models). Your own function is in the working directory, in the folder
    of config.ini or installed. Its code is part of the run's identity."""
    recipe: Annotated[str, registered(RECIPES, "my_package.recipes:recipe")] = "onecycle"
    """Optimizer, learning rate schedule and label smoothing (docs/reference/settings.md#training-recipes)."""
    # The content of the weights is part of the identity, their place is not.
    initial_weights: Annotated[str, NOT_IN_IDENTITY] = ""
    """Weights to start from: the name or path of a run's folder, or a .keras or .safetensors file. A relative path
    starts at the working directory. A layer takes the weights of its name if the shapes fit. The log and the report
    list the others. Empty means new weights."""
    freeze: Annotated[str, Rule("a regular expression of layers' names", _pattern_problem)] = ""
    """Layers that are not trained, as a regular expression for the whole name, such as conv_.*. Empty means none."""
    epochs: Annotated[int, integer(1, 100_000)] = 5
    """Passes over the train split."""
    global_batch_size: Annotated[int, integer(1, 1_000_000)] = 128
    """Examples per step over all replicas, divided evenly among them."""
    scale_learning_rate: Annotated[str, one_of("none", "linear", "sqrt")] = "none"
    """How the learning rate grows with the batch, from the batch of the recipe (muon: 2,000, else 128)."""
    augment: Annotated[str, Rule("names of operations, each with at most one number", _augment_problem, spelled)] = ""
    """Random changes of the train images, such as flip, crop:4, cutout:8 (docs/reference/settings.md#augmentation).
    They depend only on the seed, the epoch and the position in the records. Empty means none."""
    keep: Annotated[str, one_of("last", "best")] = "last"
    """Weights to keep: of the last epoch, or of the best on the validation split. best is the first epoch with the
    highest accuracy, or the lowest loss of a text. It needs [Records] validation_share."""
    patience: Annotated[int, integer(0, 100_000)] = 0
    """Epochs without a better one after which training ends. 0 means never. The learning rate schedule is laid out for
    all epochs. It needs [Records] validation_share."""
    # Another value evaluates the same weights again.
    test_time_augmentation: Annotated[str, one_of(*TEST_TIME_AUGMENTATION), NOT_IN_IDENTITY] = "none"
    """Views of a test image whose mean is one answer, in make predict too. flip adds the mirror image. flip_translate
    adds both, moved by a pixel to the lower right and to the upper left. Its accuracy stands beside the plain one."""
    deterministic: Annotated[str, one_of("false", "true")] = "false"
    """true uses only kernels that give the same bits each time and refuses operations without one. To check the
    result, use make verify-determinism (docs/concepts/comparisons.md)."""
    learning_rate: Annotated[float, number(0, 1_000, "(]", **_RECIPES_OWN)] = OF_THE_RECIPE
    """Highest learning rate of the schedule, before scale_learning_rate."""
    weight_decay: Annotated[float, number(0, 1, "[)", **_RECIPES_OWN)] = OF_THE_RECIPE
    """Weight decay. A step subtracts this share of each weight, times the learning rate. Only muon applies it to biases
    and the gains of normalizations too."""
    label_smoothing: Annotated[float, number(0, 1, "[)", **_RECIPES_OWN)] = OF_THE_RECIPE
    """Label smoothing: the share of each label that is spread over all labels."""
    backend: Annotated[str, one_of("auto", TENSORFLOW, JAX)] = "auto"
    """Backend of Keras. auto means JAX on a TPU of this host, and on a GPU if JAX has CUDA. Else it means TensorFlow,
    which is faster on a CPU. Install JAX with make setup EXTRA=jax, jax-gpu or jax-tpu."""
    device: Annotated[str, one_of("auto", "cpu", "gpu", "tpu")] = "auto"
    """Device to train on. auto means the first of TPU, GPU, CPU."""
    # It changes nothing if the device is there, else the manifest of the run says so.
    on_mismatch: Annotated[str, one_of("fail", "fallback", "skip"), NOT_IN_IDENTITY] = "fail"
    """What to do if the device is not there. fail ends with exit code 7 before any data is prepared. fallback trains
    on the device there is, and every table states that. skip adds a row with the reason. Later runs try again."""
    replicas: Annotated[int, integer(1, 64)] = 1
    """Logical devices that the CPU is split into. Accelerators are used as they are."""
    processes: Annotated[int, integer(1, MAX_PROCESSES)] = 1
    """Processes that train one model together on JAX. Start each with the same command and the same storage root, on
    one host (make train-local) or several. See docs/how-to/gpu.md."""
    # Which process this is changes nothing that is learned.
    coordinator_address: Annotated[str, NOT_IN_IDENTITY] = ""
    """Address host:port of process 0. Empty means as Slurm or Kubernetes say."""
    process_id: Annotated[int, integer(FROM_ENVIRONMENT, MAX_PROCESSES - 1), NOT_IN_IDENTITY] = FROM_ENVIRONMENT
    """Number of this process, from 0. -1 means as Slurm or Kubernetes say."""
    join_timeout_seconds: Annotated[int, integer(1, 86_400), NOT_IN_IDENTITY] = 300
    """Seconds to wait for all processes."""
    # Where the TPU is, not its kind.
    tpu_address: Annotated[str, where(TPU_ADDRESS, names_tpu), NOT_IN_IDENTITY] = ""
    """Name or address of the TPU, or local. Empty means TPU_NAME, or the TPU of this host."""
    tpu_zone: Annotated[str, NOT_IN_IDENTITY] = ""
    """Cloud zone of the named TPU."""
    tpu_project: Annotated[str, NOT_IN_IDENTITY] = ""
    """Cloud project of the named TPU."""
    precision: Annotated[str, one_of("auto", "float32", "tf32", "bfloat16")] = "auto"
    """Precision of the computation. auto means bfloat16 if the hardware computes in it, else float32. tf32 is float32
    with products of 10 bits, on NVIDIA GPUs since Ampere."""
    jit_compile: Annotated[str, one_of("auto", "true", "false")] = "auto"
    """Whether XLA compiles the model. auto means on for GPU and TPU, off on CPU. JAX always uses it."""
    cache: Annotated[str, one_of("auto", "memory", "none")] = "auto"
    """Where the train split is kept. none reads it from disk each epoch. auto means memory if it takes less than half
    of the free memory."""
    seed: Annotated[int, SEED] = 0
    """Seed of initial weights, dropout and the order of the examples in each epoch."""
    # It leaves a trace beside the run. The profiler's tools open no trace of more steps.
    profile_steps: Annotated[int, integer(0, 1_000), NOT_IN_IDENTITY] = 0
    """Steps that the profiler traces for TensorBoard, after training and its timings. To trace a finished run, add
    FORCE=Train. 0 means none."""

    def check(self) -> None:
        """Refuse replicas, processes and batches that do not fit each other."""
        # The device of auto is not known yet.
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
        if self.global_batch_size % (self.replicas * self.processes):
            multiple = f"a multiple of the {self.replicas * self.processes} replicas"
            refuse("Train", "global_batch_size", multiple, self.global_batch_size)


class ExportSettings(StageSettings, section="Export"):
    """The run in other formats, for serving."""

    calibration_examples: Annotated[int, integer(1, 1_000_000)] = 500
    """Train images that set the ranges for int8."""


def refuse_without_validation(settings: TrainSettings, splits: Collection[str]) -> None:
    """Refuse to choose an epoch without a validation split. The test split is for the report."""
    if "validation" in splits:
        return
    reason = "as the records have no validation split to choose an epoch on"
    hint = " With [Records] validation_share = 0.1 a tenth of train is held out as one."
    if settings.keep != "last":
        refuse("Train", "keep", f"last, {reason}", settings.keep, hint)
    if settings.patience:
        refuse("Train", "patience", f"0, {reason}", settings.patience, hint)


def refuse_replicas(replicas: int, device: str) -> None:
    """Refuse more than one replica on an accelerator."""
    if replicas > 1:
        refuse("Train", "replicas", f"1 on {device} (it splits the CPU; accelerators each hold one)", replicas)
