"""Settings of runs: [Train], [Export], [Repetition]."""

import re
import urllib.parse
from collections.abc import Collection, Mapping
from typing import Annotated

from pipeline.config.augment import parse_augment, spelled
from pipeline.config.membership import FROM_ENVIRONMENT, MAX_PROCESSES, split_address
from pipeline.config.own_code import one_of_or_own
from pipeline.config.refusal import refuse
from pipeline.config.schema import MAX_SEED, NOT_IN_IDENTITY, Rule, config_section, integer, number, one_of
from pipeline.config.stage import StageSettings
from pipeline.errors import SettingsError

# The models of MODELS for text. All others are for images.
TEXT_MODELS = ("char_lstm", "char_lstm_large", "shakespeare_lstm")
MODELS = (
    *("baseline_cnn", "compact_convnet", "small_convnet"),
    *("airbench_convnet", "airbench_convnet_small", "airbench_convnet_large"),
    *("mnist_dense", "mnist_cnn", "fashion_cnn", "flowers_convnet"),
    *TEXT_MODELS,
)
RECIPES = ("baseline", "onecycle", "adam", "lamb", "adam_cosine", "muon")
TENSORFLOW, JAX = "tensorflow", "jax"
TEST_TIME_AUGMENTATION = ("none", "flip", "flip_translate")
# The learning rate, weight decay or label smoothing of the recipe. 0 is a value of its own for two of them.
OF_THE_RECIPE = -1.0
# Of [Train] tpu_address, and of the environment variable TPU_NAME.
TPU_ADDRESS = "a TPU's name, local, or grpc://host:port with a port from 1 to 65535"
MAX_GLOBAL_BATCH_SIZE = 1_000_000
MAX_REPLICAS = 64
# The profiler's tools open no larger trace.
MAX_PROFILE_STEPS = 1_000

_RECIPES_OWN = {"other": OF_THE_RECIPE, "meaning": "the recipe's own"}
RECIPE_RULE = one_of_or_own(RECIPES, "my_package.recipes:recipe")


def names_tpu(address: str) -> bool:
    """Whether a text can be the name or the address of a TPU. Nothing is contacted."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", address):
        return True
    try:
        parts = urllib.parse.urlsplit(address)
        return parts.scheme == "grpc" and bool(parts.hostname and parts.port) and address.endswith(f"//{parts.netloc}")
    except ValueError:
        return False


def _pattern_problem(pattern: str) -> str | None:
    try:
        re.compile(pattern)
    except re.error as error:
        return f" {error}."


def _augment_problem(text: str) -> str | None:
    parse_augment(text)


@config_section("Train")
class TrainSettings(StageSettings):
    """The model, how it is trained, and the hardware."""

    model: Annotated[
        str,
        one_of_or_own(MODELS, "my_package.networks:build"),
        "Model. docs/settings.md describes each. Your own function is in the working directory, in the folder of "
        "config.ini or installed. Its code is part of the run's identity.",
    ] = "baseline_cnn"
    recipe: Annotated[
        str, RECIPE_RULE, "Optimizer, learning rate schedule and label smoothing. docs/settings.md describes each."
    ] = "onecycle"
    # The content of the weights is part of the identity, their place is not.
    initial_weights: Annotated[
        str,
        "Weights to start from: the name or path of a run's folder, or a .keras or .safetensors file. A relative path "
        "starts at the working directory. A layer takes the weights of its name if the shapes fit. The log and the "
        "report list the others. Empty means new weights.",
        NOT_IN_IDENTITY,
    ] = ""
    freeze: Annotated[
        str,
        Rule("a regular expression of layers' names", _pattern_problem),
        "Layers that are not trained, as a regular expression for the whole name, such as conv_.*. Empty means none.",
    ] = ""
    epochs: Annotated[int, integer(1, 100_000), "Passes over the train split."] = 5
    global_batch_size: Annotated[
        int, integer(1, MAX_GLOBAL_BATCH_SIZE), "Examples per step over all replicas, divided evenly among them."
    ] = 128
    scale_learning_rate: Annotated[
        str,
        one_of("none", "linear", "sqrt"),
        "How the learning rate grows with the batch, from the batch of the recipe (muon: 2,000, else 128).",
    ] = "none"
    augment: Annotated[
        str,
        Rule("names of operations, each with at most one number", _augment_problem, spelled),
        "Random changes of the images trained on, such as: flip, crop:4, cutout:8. docs/settings.md describes each. "
        "They depend only on the seed, the epoch and the position in the records. Empty means none.",
    ] = ""
    keep: Annotated[
        str,
        one_of("last", "best"),
        "Weights to keep: of the last epoch, or of the best on the validation split. best is the first epoch with the "
        "highest accuracy, or the lowest loss of a text. It needs [Records] validation_share.",
    ] = "last"
    patience: Annotated[
        int,
        integer(0, 100_000),
        "Epochs without a better one after which training ends. 0 means never. The learning rate schedule is laid out "
        "for all epochs. It needs [Records] validation_share.",
    ] = 0
    # Another value evaluates the same weights again.
    test_time_augmentation: Annotated[
        str,
        one_of(*TEST_TIME_AUGMENTATION),
        "Views of a test image whose mean is one answer, in make predict too. flip adds the mirror image. "
        "flip_translate adds both, moved by a pixel to the lower right and to the upper left. The accuracy is a metric "
        "beside the plain one. Another value evaluates the published weights again.",
        NOT_IN_IDENTITY,
    ] = "none"
    deterministic: Annotated[
        str,
        one_of("false", "true"),
        "true uses only kernels that give the same bits each time and refuses operations without one. To check the "
        "result, use make verify-determinism (docs/hardware.md).",
    ] = "false"
    learning_rate: Annotated[
        float,
        number(0, 1_000, "(]", **_RECIPES_OWN),
        "Highest learning rate of the schedule, before scale_learning_rate.",
    ] = OF_THE_RECIPE
    weight_decay: Annotated[
        float,
        number(0, 1, "[)", **_RECIPES_OWN),
        "Share of each weight, times the learning rate, that a step subtracts. Only muon applies it to biases and the "
        "gains of normalizations too.",
    ] = OF_THE_RECIPE
    label_smoothing: Annotated[
        float, number(0, 1, "[)", **_RECIPES_OWN), "Share of each label that is spread over all labels."
    ] = OF_THE_RECIPE
    backend: Annotated[
        str,
        one_of("auto", TENSORFLOW, JAX),
        "Backend of Keras. auto means JAX on a TPU of this host, and on a GPU if JAX has CUDA. Else it means "
        "TensorFlow, which is faster on a CPU. Install JAX with make setup EXTRA=jax, jax-gpu or jax-tpu.",
    ] = "auto"
    device: Annotated[
        str, one_of("auto", "cpu", "gpu", "tpu"), "Device to train on. auto means the first of TPU, GPU, CPU."
    ] = "auto"
    # It changes nothing if the device is there, else the manifest of the run says so.
    on_mismatch: Annotated[
        str,
        one_of("fail", "fallback", "skip"),
        "What to do if the device is not there. fail ends with exit code 7 before any data is prepared. fallback "
        "trains on the device there is, and every table states that. skip adds a row to the report with the reason. "
        "Every run looks for the device again. When it is there, its run replaces the fallback or the row.",
        NOT_IN_IDENTITY,
    ] = "fail"
    replicas: Annotated[
        int, integer(1, MAX_REPLICAS), "Logical devices that the CPU is split into. Accelerators are used as they are."
    ] = 1
    processes: Annotated[
        int,
        integer(1, MAX_PROCESSES),
        "Processes that train one model together on JAX. Start each with the same command and the same storage root, "
        "on one host (make train-local) or several. See docs/hardware.md.",
    ] = 1
    # Which process this is changes nothing that is learned.
    coordinator_address: Annotated[
        str,
        "Address host:port of process 0. Empty means as Slurm or Kubernetes say.",
        NOT_IN_IDENTITY,
    ] = ""
    process_id: Annotated[
        int,
        integer(FROM_ENVIRONMENT, MAX_PROCESSES - 1),
        "Number of this process, from 0. -1 means as Slurm or Kubernetes say.",
        NOT_IN_IDENTITY,
    ] = FROM_ENVIRONMENT
    join_timeout_seconds: Annotated[int, integer(1, 86_400), "Seconds to wait for all processes.", NOT_IN_IDENTITY] = (
        300
    )
    # Where the TPU is, not its kind.
    tpu_address: Annotated[
        str,
        Rule(TPU_ADDRESS, lambda address: None if names_tpu(address) else ""),
        "Name or address of the TPU, or local. Empty means TPU_NAME, or the TPU of this host.",
        NOT_IN_IDENTITY,
    ] = ""
    tpu_zone: Annotated[str, "Cloud zone of the named TPU.", NOT_IN_IDENTITY] = ""
    tpu_project: Annotated[str, "Cloud project of the named TPU.", NOT_IN_IDENTITY] = ""
    precision: Annotated[
        str,
        one_of("auto", "float32", "tf32", "bfloat16"),
        "Precision of the computation. auto means bfloat16 if the hardware computes in it, else float32. tf32 is "
        "float32 with products of 10 bits, on NVIDIA GPUs since Ampere.",
    ] = "auto"
    jit_compile: Annotated[
        str, one_of("auto", "true", "false"), "XLA. auto means on for GPU and TPU, off on CPU. JAX always uses it."
    ] = "auto"
    cache: Annotated[
        str,
        one_of("auto", "memory", "none"),
        "Where the train split is kept. none reads it from disk each epoch. auto means memory if it takes less than "
        "half of the free memory.",
    ] = "auto"
    seed: Annotated[
        int, integer(0, MAX_SEED), "Seed of initial weights, dropout and the order of the examples in each epoch."
    ] = 0
    # It leaves a trace beside the run.
    profile_steps: Annotated[
        int,
        integer(0, MAX_PROFILE_STEPS),
        "Steps that the profiler traces for TensorBoard, after training and its timings. To trace a finished run, add "
        "FORCE=Train. 0 means none.",
        NOT_IN_IDENTITY,
    ] = 0

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


@config_section("Export")
class ExportSettings(StageSettings):
    """The run in other formats, for serving."""

    calibration_examples: Annotated[int, integer(1, 1_000_000), "Train images that set the ranges for int8."] = 500


@config_section("Repetition")
class RepetitionSettings(StageSettings):
    """The run that make verify-determinism trains again."""

    of: Annotated[
        str,
        "Name of the run, which must be one that the settings reach. Empty means the run of [Train].",
        NOT_IN_IDENTITY,
    ] = ""


def check_keras_environment(environment: Mapping[str, str]) -> None:
    """Refuse environment variables of Keras under which a run is not what its settings say.

    Raises:
        SettingsError: KERAS_BACKEND is not "tensorflow", or a KERAS_MAX_… limits epochs or steps.
    """
    if limits := sorted(name for name in environment if name.startswith("KERAS_MAX_")):
        raise SettingsError(
            f"environment variable {limits[0]}: expected none, got {environment[limits[0]]!r}. It ends training early, "
            "and no run says so: unset it. [Train] epochs sets how long a run trains."
        )
    backend = environment.get("KERAS_BACKEND", "")
    if backend != "tensorflow":
        raise SettingsError(
            f"environment variable KERAS_BACKEND: expected tensorflow, got {backend!r}. What trains on JAX is started "
            "by [Train] backend = jax, and all else computes with TensorFlow: unset KERAS_BACKEND."
        )


def refuse_without_validation(settings: TrainSettings, splits: Collection[str]) -> None:
    """Refuse to choose an epoch without a validation split. The test split is for the report.

    Raises:
        SettingsError: ``splits`` lacks validation, and ``keep`` or ``patience`` needs it.
    """
    if "validation" in splits:
        return
    reason = "as the records have no validation split to choose an epoch on"
    hint = " With [Records] validation_share = 0.1 a tenth of train is held out as one."
    if settings.keep != "last":
        refuse("Train", "keep", f"last, {reason}", settings.keep, hint)
    if settings.patience:
        refuse("Train", "patience", f"0, {reason}", settings.patience, hint)


def refuse_replicas(replicas: int, device: str) -> None:
    """Refuse more than one replica on an accelerator.

    Raises:
        SettingsError: ``replicas`` is more than 1.
    """
    if replicas > 1:
        refuse("Train", "replicas", f"1 on {device} (it splits the CPU; accelerators each hold one)", replicas)
