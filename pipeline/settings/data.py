"""Settings of the data ([Source] and [Records])."""

import os
import re
import shlex
from typing import Annotated

from pipeline.errors import SettingsError, closest, refuse
from pipeline.settings.schema import (
    AUTO,
    NOT_IN_IDENTITY,
    SEED,
    Rule,
    StageSettings,
    absence,
    integer,
    number,
    one_of,
    or_auto,
    where,
)

PLACEHOLDER = "placeholder"
# The default dataset. Only this one is replaced by the placeholder dataset without a request.
SHIPPED = "cifar10"
# Formats of user data. TFDS has no datasets with these names.
LABELED_TEXTS = ("text_folder", "text_table")
OF_FILES = ("folder", "table", "parquet", "webdataset", "tfrecord", "npz", *LABELED_TEXTS)
# Formats with a column per property of an example.
OF_COLUMNS = ("table", "parquet", "text_table")
TEXT = "text"
# Datasets whose placeholder is a text.
TEXTS = (TEXT, "tiny_shakespeare")
RUNNERS = (
    *("DataflowRunner", "BundleBasedDirectRunner", "DirectRunner", "SwitchingDirectRunner", "InteractiveRunner"),
    *("FlinkRunner", "FnApiRunner", "KafkaStreamsRunner", "PortableRunner", "PrismRunner", "SparkRunner"),
    *("TestDirectRunner", "TestDataflowRunner"),
)
# File names of TFDS have five digits for the shard.
_SHARDS = integer(1, 99_999)
# Largest value of a 16-bit image.
MAX_VALUE = 65_535
FULL_RANGE = (0, MAX_VALUE)


def folder_hint(dataset: str) -> str:
    """Suggest the format ``folder`` if the name of a dataset is the path of a folder."""
    is_folder = os.path.isdir(os.path.expanduser(dataset))
    return f" Did you mean --Source-dataset folder --Source-path {dataset}?" if is_folder else ""


def _is_value_range(text: str) -> bool:
    limits = re.fullmatch(r"(-?\d{1,5})\s*,\s*(-?\d{1,5})", text)
    return text in ("full", "data") or (bool(limits) and int(limits[1]) < int(limits[2]) <= MAX_VALUE)


def _runner_problem(name: str) -> str | None:
    if re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name):
        return absence(*name.rsplit(".", 1))
    # Beam ignores case and accepts the name without "Runner".
    is_known = {name.lower(), f"{name.lower()}runner"} & {known.lower() for known in RUNNERS}
    return None if is_known else closest(name, RUNNERS)


_RUNNER = Rule("the name of a Beam runner, or the dotted class of one in an installed module", _runner_problem)
_DATASET = Rule(
    "a TensorFlow Datasets name such as cifar10, or a format such as folder or text",
    lambda name: None if re.fullmatch(r"[a-z][a-z0-9_]*(/[A-Za-z0-9_.-]+)?", name) else folder_hint(name),
)
_LABEL_PATTERN = where(
    "a regular expression with the group (?P<label>...)", lambda pattern: "label" in re.compile(pattern).groupindex
)
_FLAGS = where(
    "Beam flags such as --direct_num_workers=2", lambda options: all(flag[:2] == "--" for flag in shlex.split(options))
)
_SIDES = ("auto", "original", *map(str, range(32, 4_097)))
_STORE_SIDE = where("auto, original, or a number of pixels from 32 to 4096", lambda text: text in _SIDES)


class SourceSettings(StageSettings, section="Source"):
    """The dataset."""

    dataset: Annotated[str, _DATASET] = SHIPPED
    """Name of a TensorFlow Datasets dataset, or the format of your own data at `path`. See docs/how-to/own-data.md.
    - `folder` is a folder of images, as `<path>/<label>/<image>` or
      `<path>/{train,test,validation}/<label>/<image>`.
    - `table` is a CSV, TSV or Parquet file with one row per image.
    - `parquet`, `webdataset`, `tfrecord` and `npz` are a file that contains images, or a folder of such files. They are
      Parquet as Hugging Face datasets writes it, tar files of WebDataset, TFRecords, and arrays of NumPy.
    - `text_folder` and `text_table` are texts with one label each, in a folder or a table of the same layout.
    - `text` is a UTF-8 file or a folder of them, as `<path>/<file>` or `<path>/{train,test,validation}/<file>`. The
      model learns to predict the next character, as for tiny_shakespeare of TensorFlow Datasets."""
    # The identity contains the contents of the files instead.
    path: Annotated[str, NOT_IN_IDENTITY] = ""
    """Path of the folder or file."""
    text_column: str = "text"
    """Column of the table with the texts. With `text`, other usual names such as `review` are found, too."""
    path_column: str = "path"
    """Column of the table with the image paths. The paths are relative to the folder of the table. With `path`, other
    usual names such as `filename` are found, too."""
    image_column: str = ""
    """Column of the Parquet file with the images, or feature of the TFRecords. Empty means detection."""
    label_column: str = "label"
    """Column of the table or Parquet file with the labels, or feature of the TFRecords. In a table, `label` also finds
    other usual names, and several columns such as `cat, dog` contain 0 or 1 for each label, or numbers to predict."""
    label_separator: str = ""
    """Character between the labels in a cell of the table, such as `;`. An image then has any number of labels."""
    problem: Annotated[str, one_of(AUTO, "image_classification", "multi_label", "regression")] = AUTO
    """Target of the model for a table of images. `auto` means one label per image. It means several labels with
    `label_separator` or several columns of 0 and 1, and `regression` for decimals or several columns of numbers."""
    split_column: str = ""
    """Column of the table or Parquet file with the splits (train, test or validation). Empty means none."""
    group_column: str = ""
    """Column of the table or Parquet file with a group per image, such as the patient or the camera. All images of a
    group are in the same split, and the shares of the splits are shares of the groups. Empty means no groups."""
    path_prefix: str = ""
    """Text to add before each path in the table, such as `images/`."""
    path_suffix: str = ""
    """Text to add after each path in the table, such as `.jpg`."""
    label_pattern: Annotated[str, _LABEL_PATTERN] = ""
    """Regular expression that finds the label in the name of each image of a folder, such as
    `^(?P<label>[a-z]+)_\\d+`. Empty means that the folder of an image is its label."""
    value_range: Annotated[
        str, where(f"full, data, or two values up to {MAX_VALUE} as in 0, 4095", _is_value_range)
    ] = "full"
    """Values of 16-bit images to map to black and white. `full` means 0 and 65535. `data` means the lowest and highest
    value in the images. With `full`, a warning is logged if the images use at most a quarter of the range."""
    on_bad_example: Annotated[str, one_of("fail", "skip")] = "fail"
    """Behavior for images that cannot be decoded, and for texts that are empty or not in UTF-8. `fail` lists them and
    ends the run with exit code 4. `skip` omits them, up to the share `max_bad_share`."""
    max_bad_share: Annotated[float, number(0, 1)] = 0.01
    """Largest share of images or texts to skip."""
    origin: Annotated[str, one_of("auto", "tfds", PLACEHOLDER)] = "auto"
    """Origin of the examples. `tfds` requires the dataset, and the run ends with exit code 3 if it is unavailable.
    `placeholder` generates images or text. `auto` uses the placeholder dataset only if cifar10 is unavailable. Reports
    state the origin."""
    test_share: Annotated[float, number(0, 1, "()")] = 0.2
    """Share of the train split that becomes the test split if the dataset has none. A hash of each key selects the
    examples. Files with one label each are selected within each label, so all splits have the same shares of the labels
    (docs/concepts/placement.md). For a text, the test split is its end."""
    # A copy in another folder is the same dataset.
    tfds_data_dir: Annotated[str, NOT_IN_IDENTITY] = ""
    """Folder of prepared TFDS datasets. Empty means TFDS_DATA_DIR, or the default of TFDS if that is unset."""

    def check(self) -> None:
        """Refuse a missing or unused path, and groups of data without columns."""
        if self.group_column and self.dataset not in OF_COLUMNS:
            expected = f"no column for the dataset {self.dataset!r}, which has none"
            hint = f" Groups need dataset = {' or '.join(OF_COLUMNS)}. List the images in a table."
            refuse("Source", "group_column", expected, self.group_column, hint)
        if self.path and not self.has_path:
            raise SettingsError(
                f"[Source] path: expected no path for the dataset {self.dataset!r}, got {self.path!r}. To use this "
                f"path, set dataset to {', '.join(OF_FILES)} or {TEXT}, as in --Source-dataset folder."
            )
        if not self.path and self.has_path and self.origin != PLACEHOLDER:
            expected = "a text, a file or a folder of them" if self.dataset == TEXT else "a folder or file of examples"
            refuse("Source", "path", f"the path of {expected}", self.path)
        if self.dataset in LABELED_TEXTS and self.origin == PLACEHOLDER:
            refuse("Source", "origin", "auto, because no placeholder has texts with labels", self.origin)

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
    """The TFRecord files that contain the examples."""

    train_shards: Annotated[int, _SHARDS] = 16
    """Number of TFRecord files of the train split."""
    test_shards: Annotated[int, _SHARDS] = 4
    """Number of TFRecord files of the test split."""
    validation_share: Annotated[float, number(0, 1, "[)")] = 0.0
    """Share of the train split that becomes the validation split. Use validation accuracy to choose settings. The split
    has as many files as the test split. The examples are selected as those of `test_share`. For a text, the validation
    split is the end of its train split."""
    sequence_length: Annotated[int, integer(1, 65_536)] = 100
    """Number of characters that the model predicts per example of a text. Each prediction uses the preceding characters
    of the example. An example contains one more character, which is the first of the next example."""
    text_length: Annotated[int, integer(16, 65_536)] = 1_024
    """Number of bytes of each text with a label that the records contain, at most. The rest of a longer text is left
    out, and a shorter text is padded with zeros. If all texts are shorter, the longest sets the length."""
    image_size: Annotated[int | str, or_auto(integer(0, 4_096))] = AUTO
    """Height and width of the images in pixels. 0 keeps the original size and requires that all images have the same
    size. `auto` means 0 for images of the same size up to 64 pixels, and 160 for photographs. For images between these,
    it depends on their median shorter side."""
    resize: Annotated[str, one_of("crop", "pad", "stretch")] = "crop"
    """How images are resized to `image_size`. `crop` uses the center of the longer side. `pad` adds black borders.
    `stretch` changes the aspect ratio."""
    encoding: Annotated[str, one_of("auto", "raw", "jpeg", "png")] = "auto"
    """How images are stored. `raw` stores decoded pixels, which are fast to read. `jpeg` and `png` use less disk space
    and are decoded during training. `auto` means `raw` for images of up to 64 pixels per side, and the original
    encoding for larger ones."""
    store_side: Annotated[str, _STORE_SIDE] = "auto"
    """Shorter side in pixels to which encoded images are reduced if theirs is at least 1.5 times as long, so that no
    epoch decodes photographs at camera size. JPEGs get a quality of 92. `auto` is 1.15 times an `image_size` above 64.
    `original` reduces no image."""
    seed: Annotated[int, SEED] = 0
    """Seed of the order of the examples within and across shards."""
    # All runners write the same bytes, with any number of workers.
    runner: Annotated[str, _RUNNER, NOT_IN_IDENTITY] = "FnApiRunner"
    """Beam runner. All runners write the same records. See docs/how-to/cluster.md."""
    runner_options: Annotated[str, _FLAGS, NOT_IN_IDENTITY] = ""
    """Flags for Beam, such as `--direct_running_mode=multi_processing --direct_num_workers=2`. On the command line, use
    an equals sign, as in `--Records-runner-options="--direct_num_workers=2"`."""
    workers_share: Annotated[str, one_of("root", "remote"), NOT_IN_IDENTITY] = "root"
    """Storage that the workers of a cluster share. `root` means the storage root, at the same path on all machines.
    `remote` means only [Storage] remote. Each worker then uploads its shards as objects (docs/how-to/cluster.md)."""

    def beam_flags(self) -> list[str]:
        """``runner_options`` as a list of Beam flags, split as a shell splits words."""
        return shlex.split(self.runner_options)
