"""Every setting of the pipeline as frozen, validated dataclasses: one per section of config.ini.

Validation happens here, once, before any work: a stage that holds a settings object may trust it. Choices are listed
here rather than imported from the modules that implement them, so that refusing a misspelt name never waits for
TensorFlow to be imported; a test holds each list against its implementation.
"""

import difflib
import itertools
import re
import shlex
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pipeline.errors import SettingsError
from pipeline.installed import find_module, has_name

STAGES = ("Source", "Records", "Train", "Report")
ON_BUSY = ("leave", "wait")
LOG_FORMATS = ("text", "json")
ORIGINS = ("auto", "tfds", "synthetic")
# Names that no TFDS dataset has.
OF_FILES = ("folder", "table")
ON_BAD_EXAMPLE = ("fail", "skip")
RUNNERS = (
    "DataflowRunner",
    "BundleBasedDirectRunner",
    "DirectRunner",
    "SwitchingDirectRunner",
    "InteractiveRunner",
    "FlinkRunner",
    "FnApiRunner",
    "KafkaStreamsRunner",
    "PortableRunner",
    "PrismRunner",
    "SparkRunner",
    "TestDirectRunner",
    "TestDataflowRunner",
)
RESIZE = ("crop", "pad", "stretch")
ENCODINGS = ("auto", "raw", "jpeg", "png")
MODELS = ("baseline_cnn",)
RECIPES = ("baseline", "onecycle", "lamb")
DEVICES = ("auto", "cpu", "gpu", "tpu")
CACHE = ("auto", "memory", "none")
ON_MISMATCH = ("fail", "fallback", "skip")
SCALE_LEARNING_RATE = ("none", "linear", "sqrt")
PRECISIONS = ("auto", "float32", "bfloat16")
JIT_COMPILE = ("auto", "true", "false")

# Of [Train] tpu_address, and of the environment variable TPU_NAME.
TPU_ADDRESS = "a TPU's name, local, or grpc://host:port with a port from 1 to 65535"

# Each list of [Report], and the setting of [Train] it sweeps.
SWEPT = {
    "devices": "device",
    "global_batch_sizes": "global_batch_size",
    "seeds": "seed",
    "precisions": "precision",
    "recipes": "recipe",
}

MAX_GLOBAL_BATCH_SIZE = 1_000_000
# tf.random and Beam's options take 32-bit seeds; five digits of shard are what TFDS's file names hold.
MAX_SEED = 2**31 - 1
MAX_SHARDS = 99_999
MAX_REPLICAS = 64
MAX_IMAGE_SIZE = 4_096
# A trace of more is larger than the profiler's tools open.
MAX_PROFILE_STEPS = 1_000
# Beyond it nothing is a regression.
MAX_SIGMA = 1_000
# Runs, or days: nearly three hundred years.
MAX_KEPT = 100_000
# What a chat service or a mail still shows.
MAX_LOG_LINES = 200
# A year, below what an alarm of the operating system takes.
MAX_TIME_LIMIT_SECONDS = 366 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """Where artefacts go, how long they are kept, and what if another process works there; section [Storage]."""

    root: str = "data"
    on_busy: str = "leave"
    log_format: str = "text"
    keep_runs: int = 0
    keep_days: int = 0

    def __post_init__(self) -> None:
        # As a path gs://bucket is the folder "gs:", and nothing is that of the project.
        if not self.root.strip() or re.match(r"[a-zA-Z][a-zA-Z0-9+.-]*:/", self.root):
            refuse("Storage", "root", "a folder on this machine", self.root)
        _one_of("Storage", "on_busy", ON_BUSY, self.on_busy)
        _one_of("Storage", "log_format", LOG_FORMATS, self.log_format)
        _in_range("Storage", "keep_runs", self.keep_runs, 0, MAX_KEPT)
        _in_range("Storage", "keep_days", self.keep_days, 0, MAX_KEPT)


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """Whom to tell of an unattended run that failed or works again; section [Notify]."""

    webhook_url: str = field(default="", repr=False)
    report_url: str = ""
    log_lines: int = 20

    def __post_init__(self) -> None:
        # Who knows the address can write to it: it is not quoted.
        if self.webhook_url and not _is_web_address(self.webhook_url):
            refuse("Notify", "webhook_url", "an address that begins with https:// or http://", "something else")
        if self.report_url and not _is_web_address(self.report_url):
            refuse("Notify", "report_url", "an address that begins with https:// or http://", self.report_url)
        _in_range("Notify", "log_lines", self.log_lines, 0, MAX_LOG_LINES)


@dataclass(frozen=True, kw_only=True)
class MetricsSettings:
    """Where the figures of an unattended run are left for monitoring; section [Metrics]."""

    prometheus_file: str = ""

    def __post_init__(self) -> None:
        # The collector takes no others.
        if self.prometheus_file and not self.prometheus_file.endswith(".prom"):
            refuse("Metrics", "prometheus_file", "a path that ends in .prom", self.prometheus_file)


@dataclass(frozen=True, kw_only=True)
class ForceSettings:
    """What is made again although nothing has changed; section [Force]."""

    stage: str = ""

    def __post_init__(self) -> None:
        _one_of("Force", "stage", (*STAGES, ""), self.stage)


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """What every stage has."""

    section: ClassVar[str]
    time_limit_seconds: int = 0

    def __post_init__(self) -> None:
        _in_range(self.section, "time_limit_seconds", self.time_limit_seconds, 0, MAX_TIME_LIMIT_SECONDS)


@dataclass(frozen=True, kw_only=True)
class SourceSettings(StageSettings):
    """Where examples come from; section [Source]."""

    section: ClassVar[str] = "Source"

    dataset: str = "cifar10"
    origin: str = "auto"
    path: str = ""
    path_column: str = "path"
    label_column: str = "label"
    split_column: str = ""
    test_share: float = 0.2
    on_bad_example: str = "fail"
    max_bad_share: float = 0.01
    tfds_data_dir: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.-]+)?", self.dataset):
            refuse("Source", "dataset", "a TensorFlow Datasets name such as cifar10 or mnist", self.dataset)
        _one_of("Source", "origin", ORIGINS, self.origin)
        # Not a number compares false with everything.
        if not 0 < self.test_share < 1:
            refuse("Source", "test_share", "a number between 0 and 1", self.test_share)
        _one_of("Source", "on_bad_example", ON_BAD_EXAMPLE, self.on_bad_example)
        if not 0 <= self.max_bad_share <= 1:
            refuse("Source", "max_bad_share", "a number from 0 to 1", self.max_bad_share)
        if self.path and not self.of_files:
            refuse("Source", "path", f"nothing, unless dataset is one of {', '.join(OF_FILES)}", self.path)
        if not self.path and self.of_files and self.origin != "synthetic":
            refuse("Source", "path", f"the path of the {self.dataset} of images", self.path)

    @property
    def of_files(self) -> bool:
        """Whether the examples are single files, whose folder or table ``path`` names."""
        return self.dataset in OF_FILES


@dataclass(frozen=True, kw_only=True)
class RecordsSettings(StageSettings):
    """How examples are laid out in shards; section [Records]."""

    section: ClassVar[str] = "Records"

    train_shards: int = 16
    test_shards: int = 4
    validation_share: float = 0.0
    image_size: int = 0
    resize: str = "crop"
    encoding: str = "auto"
    seed: int = 0
    runner: str = "FnApiRunner"
    runner_options: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        _in_range("Records", "train_shards", self.train_shards, 1, MAX_SHARDS)
        _in_range("Records", "test_shards", self.test_shards, 1, MAX_SHARDS)
        # Not a number compares false with everything.
        if not 0 <= self.validation_share < 1:
            refuse("Records", "validation_share", "a number from 0 up to but not including 1", self.validation_share)
        _in_range("Records", "image_size", self.image_size, 0, MAX_IMAGE_SIZE)
        _one_of("Records", "resize", RESIZE, self.resize)
        _one_of("Records", "encoding", ENCODINGS, self.encoding)
        _in_range("Records", "seed", self.seed, 0, MAX_SEED)
        _check_runner(self.runner)
        self.beam_flags()

    def beam_flags(self) -> list[str]:
        """``runner_options`` as a list of Beam flags, split as a shell splits words."""
        try:
            flags = shlex.split(self.runner_options)
        except ValueError:
            flags = ["unbalanced quotes"]
        if any(not flag.startswith("--") for flag in flags):
            refuse("Records", "runner_options", "Beam flags such as --direct_num_workers=2", self.runner_options)
        return flags

    def num_shards(self, split: str) -> int:
        """The number of TFRecord files of ``split``; validation, which is read as test is, has as many."""
        return self.train_shards if split == "train" else self.test_shards


@dataclass(frozen=True, kw_only=True)
class TrainSettings(StageSettings):
    """What is trained, how and on what; section [Train]."""

    section: ClassVar[str] = "Train"

    model: str = "baseline_cnn"
    recipe: str = "onecycle"
    epochs: int = 5
    global_batch_size: int = 128
    scale_learning_rate: str = "none"
    device: str = "auto"
    on_mismatch: str = "fail"
    replicas: int = 1
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
        _one_of("Train", "model", MODELS, self.model)
        _one_of("Train", "recipe", RECIPES, self.recipe)
        _in_range("Train", "epochs", self.epochs, 1, 100_000)
        _in_range("Train", "global_batch_size", self.global_batch_size, 1, MAX_GLOBAL_BATCH_SIZE)
        _one_of("Train", "scale_learning_rate", SCALE_LEARNING_RATE, self.scale_learning_rate)
        _one_of("Train", "device", DEVICES, self.device)
        _one_of("Train", "on_mismatch", ON_MISMATCH, self.on_mismatch)
        _in_range("Train", "replicas", self.replicas, 1, MAX_REPLICAS)
        # What "auto" comes to is known only where the device is; all else before any device is asked for.
        if self.device in ("gpu", "tpu"):
            refuse_replicas(self.replicas, self.device)
        if self.global_batch_size % self.replicas:
            multiple = f"a multiple of the {self.replicas} replicas"
            refuse("Train", "global_batch_size", multiple, self.global_batch_size)
        if self.tpu_address and not names_tpu(self.tpu_address):
            refuse("Train", "tpu_address", TPU_ADDRESS, self.tpu_address)
        _one_of("Train", "precision", PRECISIONS, self.precision)
        _one_of("Train", "jit_compile", JIT_COMPILE, self.jit_compile)
        _one_of("Train", "cache", CACHE, self.cache)
        _in_range("Train", "seed", self.seed, 0, MAX_SEED)
        _in_range("Train", "profile_steps", self.profile_steps, 0, MAX_PROFILE_STEPS)


@dataclass(frozen=True, kw_only=True)
class ExportSettings(StageSettings):
    """In which forms a run is to serve elsewhere; section [Export]."""

    section: ClassVar[str] = "Export"

    calibration_examples: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        _in_range("Export", "calibration_examples", self.calibration_examples, 1, 1_000_000)


@dataclass(frozen=True, kw_only=True)
class ReportSettings(StageSettings):
    """Which runs the report asks for: the product of the lists, an empty one standing for [Train]'s own value."""

    section: ClassVar[str] = "Report"

    devices: tuple[str, ...] = ()
    global_batch_sizes: tuple[int, ...] = ()
    seeds: tuple[int, ...] = ()
    precisions: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()
    min_val_accuracy: float = 0.0
    max_regression_sigma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, choices in (("devices", DEVICES), ("precisions", PRECISIONS), ("recipes", RECIPES)):
            for value in getattr(self, name):
                _one_of("Report", name, choices, value)
        for name, low, high in (("global_batch_sizes", 1, MAX_GLOBAL_BATCH_SIZE), ("seeds", 0, MAX_SEED)):
            for value in getattr(self, name):
                _in_range("Report", name, value, low, high)
        for name, high in (("min_val_accuracy", 1), ("max_regression_sigma", MAX_SIGMA)):
            value = getattr(self, name)
            # Not a number compares false with everything.
            if not 0 <= value <= high:
                refuse("Report", name, f"a number from 0 to {high}", value)

    def combinations(self) -> list[dict[str, object]]:
        """[Train]'s settings of each run asked for, each run once, the last list changing fastest."""
        lists = {setting: getattr(self, name) for name, setting in SWEPT.items() if getattr(self, name)}
        products = itertools.product(*(dict.fromkeys(values) for values in lists.values()))
        return [dict(zip(lists, values, strict=True)) for values in products]


def refuse(section: str, name: str, expected: str, got: object, hint: str = "") -> None:
    """Raise the SettingsError every refused setting is reported with.

    Raises:
        SettingsError: always; it names the setting, what was expected, what came and where to change it.
    """
    raise SettingsError(
        f"[{section}] {name}: expected {expected}, got {got!r}.{hint} "
        f"Change it in config.ini or pass --{section}-{name.replace('_', '-')}."
    )


def check_keras_backend(backend: str) -> None:
    """Refuse a value of the environment variable KERAS_BACKEND under which nothing here trains.

    Raises:
        SettingsError: it is another one than "tensorflow".
    """
    if backend != "tensorflow":
        raise SettingsError(
            f"environment variable KERAS_BACKEND: expected tensorflow, got {backend!r}. The input stream and the "
            "placement on devices are TensorFlow's: unset KERAS_BACKEND, or set it to tensorflow."
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


def refuse_replicas(replicas: int, device: str) -> None:
    """Refuse more than one replica on an accelerator.

    Raises:
        SettingsError: ``replicas`` is more than 1.
    """
    if replicas > 1:
        refuse("Train", "replicas", f"1 on {device} (it splits the CPU; accelerators each hold one)", replicas)


def closest(name: str, known: Sequence[str]) -> str:
    """' Did you mean …?' for the known name nearest to ``name``, or an empty string."""
    matches = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {matches[0]!r}?" if matches else ""


def _is_web_address(text: str) -> bool:
    return re.fullmatch(r"https?://[^/\s]+(/\S*)?", text) is not None


def _one_of(section: str, name: str, choices: Sequence[str], got: str) -> None:
    if got not in choices:
        refuse(
            section,
            name,
            f"one of {', '.join(choice or 'nothing' for choice in choices)}",
            got,
            closest(str(got), choices),
        )


def _check_runner(name: str) -> None:
    expected = "the name of a Beam runner, or the dotted class of one in an installed module"
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
        module, _, runner = name.rpartition(".")
        if find_module(module) is None:
            refuse("Records", "runner", expected, name)
        if not has_name(module, runner):
            refuse("Records", "runner", expected, name, f" {module} has no {runner}.")
    # As Beam takes them: in any case, and without what they all end in.
    elif not {name.lower(), f"{name.lower()}runner"} & {known.lower() for known in RUNNERS}:
        refuse("Records", "runner", expected, name, closest(name, RUNNERS))


def _in_range(section: str, name: str, got: int, low: int, high: int) -> None:
    # A JSON list may hold true, which is an int to isinstance.
    if type(got) is not int or not low <= got <= high:
        refuse(section, name, f"an integer from {low} to {high}", got)
