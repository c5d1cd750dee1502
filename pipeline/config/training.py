"""Settings of runs: [Train], [Export], [Repetition]."""

import re
import urllib.parse
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from pipeline.config.augment import parse_augment
from pipeline.config.membership import FROM_ENVIRONMENT, MAX_PROCESSES, split_address
from pipeline.config.own_code import one_of_or_own
from pipeline.config.refusal import in_range, one_of, refuse
from pipeline.config.stage import MAX_SEED, StageSettings
from pipeline.errors import SettingsError

# Of MODELS the networks for text; all others are for images.
TEXT_MODELS = ("char_lstm", "char_lstm_large", "shakespeare_lstm")
MODELS = (
    *("baseline_cnn", "compact_convnet", "small_convnet"),
    *("airbench_convnet", "airbench_convnet_small", "airbench_convnet_large"),
    *("mnist_dense", "mnist_cnn", "fashion_cnn", "flowers_convnet"),
    *TEXT_MODELS,
)
RECIPES = ("baseline", "onecycle", "adam", "lamb", "adam_cosine", "muon")
# How functions of one's own are given instead.
OWN_MODEL, OWN_RECIPE = "my_package.networks:build", "my_package.recipes:recipe"
TENSORFLOW, JAX = "tensorflow", "jax"
BACKENDS = ("auto", TENSORFLOW, JAX)
DEVICES = ("auto", "cpu", "gpu", "tpu")
CACHE = ("auto", "memory", "none")
ON_MISMATCH = ("fail", "fallback", "skip")
SCALE_LEARNING_RATE = ("none", "linear", "sqrt")
# Of learning_rate, weight_decay and label_smoothing: what the recipe has. 0 is a value of its own for two of them.
OF_THE_RECIPE = -1.0
MAX_LEARNING_RATE = 1_000
PRECISIONS = ("auto", "float32", "tf32", "bfloat16")
KEEP = ("last", "best")
TEST_TIME_AUGMENTATION = ("none", "flip", "flip_translate")
DETERMINISTIC = ("false", "true")
JIT_COMPILE = ("auto", "true", "false")
# Of [Train] tpu_address, and of the environment variable TPU_NAME.
TPU_ADDRESS = "a TPU's name, local, or grpc://host:port with a port from 1 to 65535"
MAX_GLOBAL_BATCH_SIZE = 1_000_000
MAX_REPLICAS = 64
# A trace of more is larger than the profiler's tools open.
MAX_PROFILE_STEPS = 1_000


@dataclass(frozen=True, kw_only=True)
class TrainSettings(StageSettings):
    """What is trained, how and on what; section [Train]."""

    section: ClassVar[str] = "Train"

    model: str = "baseline_cnn"
    recipe: str = "onecycle"
    initial_weights: str = ""
    freeze: str = ""
    epochs: int = 5
    global_batch_size: int = 128
    scale_learning_rate: str = "none"
    augment: str = ""
    keep: str = "last"
    patience: int = 0
    test_time_augmentation: str = "none"
    deterministic: str = "false"
    learning_rate: float = OF_THE_RECIPE
    weight_decay: float = OF_THE_RECIPE
    label_smoothing: float = OF_THE_RECIPE
    backend: str = "auto"
    device: str = "auto"
    on_mismatch: str = "fail"
    replicas: int = 1
    processes: int = 1
    coordinator_address: str = ""
    process_id: int = FROM_ENVIRONMENT
    join_timeout_seconds: int = 300
    tpu_address: str = ""
    tpu_zone: str = ""
    tpu_project: str = ""
    precision: str = "auto"
    jit_compile: str = "auto"
    cache: str = "auto"
    seed: int = 0
    profile_steps: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of_or_own("Train", "model", MODELS, self.model, OWN_MODEL)
        one_of_or_own("Train", "recipe", RECIPES, self.recipe, OWN_RECIPE)
        try:
            re.compile(self.freeze)
        except re.error as error:
            refuse("Train", "freeze", "a regular expression of layers' names", self.freeze, f" {error}.")
        in_range("Train", "epochs", self.epochs, 1, 100_000)
        in_range("Train", "global_batch_size", self.global_batch_size, 1, MAX_GLOBAL_BATCH_SIZE)
        one_of("Train", "scale_learning_rate", SCALE_LEARNING_RATE, self.scale_learning_rate)
        parse_augment(self.augment)
        one_of("Train", "keep", KEEP, self.keep)
        in_range("Train", "patience", self.patience, 0, 100_000)
        one_of("Train", "test_time_augmentation", TEST_TIME_AUGMENTATION, self.test_time_augmentation)
        one_of("Train", "deterministic", DETERMINISTIC, self.deterministic)
        check_learning_rate("Train", "learning_rate", self.learning_rate)
        for name in ("weight_decay", "label_smoothing"):
            # Not a number compares false with everything.
            if not (0 <= getattr(self, name) < 1 or getattr(self, name) == OF_THE_RECIPE):
                expected = f"a number from 0 up to but not including 1, or {OF_THE_RECIPE:.0f}, the recipe's own"
                refuse("Train", name, expected, getattr(self, name))
        one_of("Train", "backend", BACKENDS, self.backend)
        one_of("Train", "device", DEVICES, self.device)
        one_of("Train", "on_mismatch", ON_MISMATCH, self.on_mismatch)
        in_range("Train", "replicas", self.replicas, 1, MAX_REPLICAS)
        # What "auto" comes to is known only where the device is; all else before any device is asked for.
        if self.device in ("gpu", "tpu"):
            refuse_replicas(self.replicas, self.device)
        self._check_processes()
        if self.global_batch_size % (self.replicas * self.processes):
            multiple = f"a multiple of the {self.replicas * self.processes} replicas"
            refuse("Train", "global_batch_size", multiple, self.global_batch_size)
        if self.tpu_address and not names_tpu(self.tpu_address):
            refuse("Train", "tpu_address", TPU_ADDRESS, self.tpu_address)
        one_of("Train", "precision", PRECISIONS, self.precision)
        one_of("Train", "jit_compile", JIT_COMPILE, self.jit_compile)
        one_of("Train", "cache", CACHE, self.cache)
        in_range("Train", "seed", self.seed, 0, MAX_SEED)
        in_range("Train", "profile_steps", self.profile_steps, 0, MAX_PROFILE_STEPS)

    def _check_processes(self) -> None:
        in_range("Train", "processes", self.processes, 1, MAX_PROCESSES)
        in_range("Train", "process_id", self.process_id, FROM_ENVIRONMENT, self.processes - 1)
        in_range("Train", "join_timeout_seconds", self.join_timeout_seconds, 1, 86_400)
        if self.coordinator_address:
            split_address(self.coordinator_address)
        if self.processes > 1 and self.backend == TENSORFLOW:
            hint = " Keras cannot fit under TensorFlow's MultiWorkerMirroredStrategy (keras-team/keras issue 20585)."
            refuse("Train", "backend", "jax, or auto, for several processes", self.backend, hint)


@dataclass(frozen=True, kw_only=True)
class ExportSettings(StageSettings):
    """In which forms a run is to serve elsewhere; section [Export]."""

    section: ClassVar[str] = "Export"

    calibration_examples: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range("Export", "calibration_examples", self.calibration_examples, 1, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class RepetitionSettings(StageSettings):
    """Which run is trained again, to see whether its weights come out the same; section [Repetition]."""

    section: ClassVar[str] = "Repetition"

    of: str = ""


def check_learning_rate(section: str, name: str, got: float) -> None:
    """Refuse what is neither a learning rate nor the recipe's own."""
    is_number = isinstance(got, int | float) and not isinstance(got, bool)
    if not is_number or not (0 < got <= MAX_LEARNING_RATE or got == OF_THE_RECIPE):
        expected = f"a number above 0 and up to {MAX_LEARNING_RATE}, or {OF_THE_RECIPE:.0f}, the recipe's own"
        refuse(section, name, expected, got)


def check_keras_environment(environment: Mapping[str, str]) -> None:
    """Refuse environment variables of Keras under which a run is not what its settings say.

    Raises:
        SettingsError: KERAS_BACKEND is another one than "tensorflow", or a KERAS_MAX_… limits epochs or steps.
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


def names_tpu(address: str) -> bool:
    """Whether a text can be a TPU's name or address; nothing is asked for."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", address):
        return True
    try:
        parts = urllib.parse.urlsplit(address)
        return parts.scheme == "grpc" and bool(parts.hostname and parts.port) and address.endswith(f"//{parts.netloc}")
    except ValueError:
        return False


def refuse_without_validation(settings: TrainSettings, splits: Collection[str]) -> None:
    """Refuse to choose an epoch where the records have nothing to choose it on: the test split is for what is reported.

    Raises:
        SettingsError: ``splits`` lacks validation, and ``keep`` or ``patience`` asks for it.
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
