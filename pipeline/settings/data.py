"""Settings of the data: [Source], [Records]."""

import contextlib
import os
import re
import shlex
from typing import Annotated

from pipeline.settings.schema import NOT_IN_IDENTITY, SEED, Rule, StageSettings, absence, integer, number, one_of, where
from pipeline.settings.setting_error import closest, refuse

PLACEHOLDER = "placeholder"
# The dataset as shipped. The placeholder replaces no other unless requested.
SHIPPED = "cifar10"
# Names that no TFDS dataset has: of images that are single files, and of a text.
OF_FILES = ("folder", "table")
TEXT = "text"
# Datasets whose placeholder is a text.
TEXTS = (TEXT, "tiny_shakespeare")
RUNNERS = (
    *("DataflowRunner", "BundleBasedDirectRunner", "DirectRunner", "SwitchingDirectRunner", "InteractiveRunner"),
    *("FlinkRunner", "FnApiRunner", "KafkaStreamsRunner", "PortableRunner", "PrismRunner", "SparkRunner"),
    *("TestDirectRunner", "TestDataflowRunner"),
)
# The names of TFDS's files have five digits for the shard.
_SHARDS = integer(1, 99_999)
# Of an image of 16 bits.
MAX_VALUE = 65_535
FULL_RANGE = (0, MAX_VALUE)


def folder_hint(dataset: str) -> str:
    """' Did you mean …?' if the name of a dataset is the path of a folder, else an empty string."""
    is_folder = os.path.isdir(os.path.expanduser(dataset))
    return f" Did you mean --Source-dataset folder --Source-path {dataset}?" if is_folder else ""


def _dataset_problem(name: str) -> str | None:
    return None if re.fullmatch(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.-]+)?", name) else folder_hint(name)


def _is_value_range(text: str) -> bool:
    limits = re.fullmatch(r"(-?\d{1,5})\s*,\s*(-?\d{1,5})", text)
    return text in ("full", "data") or (bool(limits) and int(limits[1]) < int(limits[2]) <= MAX_VALUE)


def _runner_problem(name: str) -> str | None:
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
        module, _, runner = name.rpartition(".")
        return absence(module, runner)
    # Beam ignores case and takes the name without "Runner".
    is_known = {name.lower(), f"{name.lower()}runner"} & {known.lower() for known in RUNNERS}
    return None if is_known else closest(name, RUNNERS)


def _are_flags(options: str) -> bool:
    with contextlib.suppress(ValueError):
        return all(flag.startswith("--") for flag in shlex.split(options))
    return False


class SourceSettings(StageSettings, section="Source"):
    """The dataset."""

    dataset: Annotated[str, Rule("a TensorFlow Datasets name such as cifar10 or mnist", _dataset_problem)] = SHIPPED
    """Name of a TensorFlow Datasets dataset, or the kind of your own data at path. See docs/own-data.md.
    - folder: a folder of images, <path>/<label>/<image> or <path>/{train,test,validation}/<label>/<image>.
    - table: a CSV, TSV or Parquet file with a row for each image.
    - text: a file in UTF-8 or a folder of them, <path>/<file> or <path>/{train,test,validation}/<file>. Each next
      character is learned, as of tiny_shakespeare of TensorFlow Datasets."""
    # The contents of the files are part of the identity, their place is not.
    path: Annotated[str, NOT_IN_IDENTITY] = ""
    """Path of the folder, table or text."""
    path_column: str = "path"
    """Column of a table with the paths of the images, relative to the table."""
    label_column: str = "label"
    """Column of a table with the labels."""
    split_column: str = ""
    """Column of a table with the splits train, test, validation. Empty means none."""
    path_prefix: str = ""
    """Text before each path of a table, such as images/."""
    path_suffix: str = ""
    """Text after each path of a table, such as .jpg."""
    value_range: Annotated[
        str, where(f"full, data, or two values up to {MAX_VALUE} as in 0, 4095", _is_value_range)
    ] = "full"
    """Values of 16-bit images that become black and white. full means 0 and 65535. data means the lowest and the
    highest value in the images. With full the log warns if a quarter of the range or less is used."""
    on_bad_example: Annotated[str, one_of("fail", "skip")] = "fail"
    """What to do about images that cannot be decoded. fail lists them and ends with exit code 4. skip leaves them out,
    up to the share max_bad_share."""
    max_bad_share: Annotated[float, number(0, 1)] = 0.01
    """Largest share of all images that may be skipped."""
    origin: Annotated[str, one_of("auto", "tfds", PLACEHOLDER)] = "auto"
    """Origin of the examples. tfds is the dataset itself, and without it the run ends with exit code 3. placeholder
    generates images or text. auto is tfds, and the placeholder if cifar10 is unavailable. Reports state it."""
    test_share: Annotated[float, number(0, 1, "()")] = 0.2
    """Share of train that becomes the test split if the dataset has none. A hash of each example's key decides, so new
    examples move no others. The end of a text becomes its test split."""
    # A copy elsewhere is the same dataset.
    tfds_data_dir: Annotated[str, NOT_IN_IDENTITY] = ""
    """Folder of prepared TFDS datasets. Empty means TFDS_DATA_DIR, else the default of TFDS."""

    def check(self) -> None:
        """Refuse a path without need, and the lack of one."""
        if self.path and not self.has_path:
            refuse("Source", "path", f"nothing, unless dataset is one of {', '.join((*OF_FILES, TEXT))}", self.path)
        if not self.path and self.has_path and self.origin != PLACEHOLDER:
            expected = "a text, a file or a folder of them" if self.dataset == TEXT else f"the {self.dataset} of images"
            refuse("Source", "path", f"the path of {expected}", self.path)

    @property
    def may_be_replaced(self) -> bool:
        """Whether the placeholder replaces the dataset if that is unavailable."""
        return self.origin == "auto" and self.dataset == SHIPPED

    @property
    def of_files(self) -> bool:
        """Whether the examples are single files, in the folder or the table at ``path``."""
        return self.dataset in OF_FILES

    @property
    def has_path(self) -> bool:
        """Whether the data are at ``path``."""
        return self.dataset in (*OF_FILES, TEXT)


class RecordsSettings(StageSettings, section="Records"):
    """The TFRecord files that the examples are written to."""

    train_shards: Annotated[int, _SHARDS] = 16
    """Number of TFRecord files of the train split."""
    test_shards: Annotated[int, _SHARDS] = 4
    """Number of TFRecord files of the test split."""
    validation_share: Annotated[float, number(0, 1, "[)")] = 0.0
    """Share of train that becomes a third split, validation, in as many files as test. Use it to choose settings. A
    hash of each example's key decides, not the seed. The end of a text's train split becomes validation."""
    sequence_length: Annotated[int, integer(1, 65_536)] = 100
    """Characters of a text that an example predicts. Each is predicted from those before it in the example. An example
    contains one character more, the first of the next example."""
    image_size: Annotated[int, integer(0, 4_096)] = 0
    """Pixels a side of the images. 0 means unchanged, if all have one size."""
    resize: Annotated[str, one_of("crop", "pad", "stretch")] = "crop"
    """How image_size is reached. crop takes the middle of the longer side. pad adds black."""
    encoding: Annotated[str, one_of("auto", "raw", "jpeg", "png")] = "auto"
    """How images are stored. raw decodes them once and reads fast. jpeg and png take less space and are decoded while
    training. auto means raw up to 64 pixels a side, else as the dataset has them."""
    seed: Annotated[int, SEED] = 0
    """Seed of the order of the examples within and across shards."""
    # Every runner with any number of workers writes the same bytes.
    runner: Annotated[
        str,
        Rule("the name of a Beam runner, or the dotted class of one in an installed module", _runner_problem),
        NOT_IN_IDENTITY,
    ] = "FnApiRunner"
    """Beam runner. It does not change the records. See docs/clusters.md."""
    runner_options: Annotated[str, where("Beam flags such as --direct_num_workers=2", _are_flags), NOT_IN_IDENTITY] = ""
    """Flags for Beam, such as --direct_running_mode=multi_processing --direct_num_workers=2. The command line needs an
    equals sign: --Records-runner-options="--direct_num_workers=2"."""
    workers_share: Annotated[str, one_of("root", "remote"), NOT_IN_IDENTITY] = "root"
    """What the workers of a cluster share. root is the storage root, at the same path on all machines. remote is only
    [Storage] remote. Then a worker writes each shard as an object (docs/clusters.md)."""

    def beam_flags(self) -> list[str]:
        """``runner_options`` as a list of Beam flags, split as a shell splits words."""
        return shlex.split(self.runner_options)
