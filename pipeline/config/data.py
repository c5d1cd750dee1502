"""Settings of the data: [Source], [Records]."""

import os
import re
import shlex
from dataclasses import dataclass
from typing import ClassVar

from pipeline.config.refusal import closest, in_range, one_of, refuse
from pipeline.config.stage import MAX_SEED, StageSettings
from pipeline.installed import find_module, has_name

PLACEHOLDER = "placeholder"
ORIGINS = ("auto", "tfds", PLACEHOLDER)
# The data set as shipped, which alone the placeholder may replace unasked.
SHIPPED = "cifar10"
# Names that no TFDS dataset has: of images that are single files, and of a text.
OF_FILES = ("folder", "table")
TEXT = "text"
# Whose stand-in is a text; that of all others are images.
TEXTS = (TEXT, "tiny_shakespeare")
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
# What the workers of a cluster share: the storage root, or [Storage] remote alone.
WORKERS_SHARE = ("root", "remote")
RESIZE = ("crop", "pad", "stretch")
ENCODINGS = ("auto", "raw", "jpeg", "png")
MAX_SHARDS = 99_999
# Of an image of 16 bits.
MAX_VALUE = 65_535
FULL_RANGE = (0, MAX_VALUE)
MAX_IMAGE_SIZE = 4_096
MAX_SEQUENCE_LENGTH = 65_536


@dataclass(frozen=True, kw_only=True)
class SourceSettings(StageSettings):
    """Where examples come from; section [Source]."""

    section: ClassVar[str] = "Source"

    dataset: str = SHIPPED
    origin: str = "auto"
    path: str = ""
    path_column: str = "path"
    label_column: str = "label"
    split_column: str = ""
    path_prefix: str = ""
    path_suffix: str = ""
    value_range: str = "full"
    test_share: float = 0.2
    on_bad_example: str = "fail"
    max_bad_share: float = 0.01
    tfds_data_dir: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.-]+)?", self.dataset):
            expected = "a TensorFlow Datasets name such as cifar10 or mnist"
            refuse("Source", "dataset", expected, self.dataset, folder_hint(self.dataset))
        one_of("Source", "origin", ORIGINS, self.origin)
        # Not a number compares false with everything.
        if not 0 < self.test_share < 1:
            refuse("Source", "test_share", "a number between 0 and 1", self.test_share)
        if self.value_range not in ("full", "data"):
            limits = re.fullmatch(r"(-?\d{1,5})\s*,\s*(-?\d{1,5})", self.value_range)
            if not limits or not int(limits[1]) < int(limits[2]) <= MAX_VALUE:
                expected = f"full, data, or two values up to {MAX_VALUE} as in 0, 4095"
                refuse("Source", "value_range", expected, self.value_range)
        one_of("Source", "on_bad_example", ON_BAD_EXAMPLE, self.on_bad_example)
        if not 0 <= self.max_bad_share <= 1:
            refuse("Source", "max_bad_share", "a number from 0 to 1", self.max_bad_share)
        if self.path and not self.has_path:
            refuse("Source", "path", f"nothing, unless dataset is one of {', '.join((*OF_FILES, TEXT))}", self.path)
        if not self.path and self.has_path and self.origin != PLACEHOLDER:
            what = "a text, a file or a folder of them" if self.dataset == TEXT else f"the {self.dataset} of images"
            refuse("Source", "path", f"the path of {what}", self.path)

    @property
    def may_be_replaced(self) -> bool:
        """Whether the placeholder takes the place of the data set where that is unavailable."""
        return self.origin == "auto" and self.dataset == SHIPPED

    @property
    def of_files(self) -> bool:
        """Whether the examples are single files, whose folder or table ``path`` names."""
        return self.dataset in OF_FILES

    @property
    def has_path(self) -> bool:
        """Whether what there is lies at ``path``."""
        return self.dataset in (*OF_FILES, TEXT)


@dataclass(frozen=True, kw_only=True)
class RecordsSettings(StageSettings):
    """How examples are laid out in shards; section [Records]."""

    section: ClassVar[str] = "Records"

    train_shards: int = 16
    test_shards: int = 4
    validation_share: float = 0.0
    sequence_length: int = 100
    image_size: int = 0
    resize: str = "crop"
    encoding: str = "auto"
    seed: int = 0
    runner: str = "FnApiRunner"
    runner_options: str = ""
    workers_share: str = "root"

    def __post_init__(self) -> None:
        super().__post_init__()
        in_range("Records", "train_shards", self.train_shards, 1, MAX_SHARDS)
        in_range("Records", "test_shards", self.test_shards, 1, MAX_SHARDS)
        # Not a number compares false with everything.
        if not 0 <= self.validation_share < 1:
            refuse("Records", "validation_share", "a number from 0 up to but not including 1", self.validation_share)
        in_range("Records", "sequence_length", self.sequence_length, 1, MAX_SEQUENCE_LENGTH)
        in_range("Records", "image_size", self.image_size, 0, MAX_IMAGE_SIZE)
        one_of("Records", "resize", RESIZE, self.resize)
        one_of("Records", "encoding", ENCODINGS, self.encoding)
        in_range("Records", "seed", self.seed, 0, MAX_SEED)
        one_of("Records", "workers_share", WORKERS_SHARE, self.workers_share)
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


def folder_hint(dataset: str) -> str:
    """' Did you mean …?' where a folder's path stands in the place of a data set's name, or an empty string."""
    is_folder = os.path.isdir(os.path.expanduser(dataset))
    return f" Did you mean --Source-dataset folder --Source-path {dataset}?" if is_folder else ""


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
