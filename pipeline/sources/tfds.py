"""Datasets of TensorFlow Datasets, which are prepared once, checked for changes, and read from their TFRecord files.

A prepared copy works offline. Before a download, each host is probed once. TFDS itself would retry an unreachable host
for more than three minutes, which is too long for ``origin = auto``. Luigi's process imports this module, but neither
TFDS nor TensorFlow.
"""

import contextlib
import errno
import hashlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import (
    DamagedArtifactError,
    DatasetUnavailableError,
    StorageError,
    UnsupportedDatasetError,
    closest,
    refuse,
)
from pipeline.records.features import CHANNELS, IMAGE, LABEL, SPLITS, ImageForm, image_spec
from pipeline.settings.data import folder_hint
from pipeline.sources.files import change, digests
from pipeline.sources.source import TFDS, Kind, Location, SourceInfo
from pipeline.sources.text import written_tokens

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow_datasets.core import DatasetBuilder

PROBE_TIMEOUT_SECONDS = 10
_READ_BUFFER_BYTES = 8 * 2**20
_DESCRIPTIONS = ("dataset_info.json", "features.json")
# An error with an open file, which does not contain the path.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)


class Tfds(Kind):
    """A dataset of TensorFlow Datasets."""

    reader = "pipeline.sources.tfds:read_prepared"

    def is_at_hand(self) -> bool:
        """Whether a prepared copy exists in any version. TFDS is not imported."""
        place = datasets_folder(self.settings.tfds_data_dir) / self.settings.dataset.partition(":")[0]
        return any(next(place.glob(f"{pattern}{_DESCRIPTIONS[0]}"), None) for pattern in ("*/", "*/*/"))

    def location(self, artifact: Path) -> Location:
        """The absolute folder of all datasets, for processes with another environment."""
        return Location(tfds_data_dir=str(datasets_folder(self.settings.tfds_data_dir)), artifact=str(artifact))

    def check(self) -> None:
        builder, _ = self._supported()
        if not builder.is_prepared():
            _probe_hosts(builder)

    def find(self, artifact: Path) -> SourceInfo:
        """Download and prepare the dataset if it is not prepared, and describe it.

        UnsupportedDatasetError: it has no train split, or neither uint8 images with labels nor a text.
        """
        dataset = self.settings.dataset
        # Checked before a download.
        builder, keys = self._supported()
        prepare(builder, dataset)
        if "train" not in builder.info.splits:
            raise _unsupported(dataset, f"a train split, got {', '.join(builder.info.splits) or 'no splits'}")
        facts = self._image_facts(builder, *keys) if len(keys) == 2 else self._text_facts(builder, *keys, artifact)
        return SourceInfo(
            dataset=dataset,
            origin=TFDS,
            version=str(builder.version),
            prepared_as=builder.data_path.relative_to(_datasets_folder(builder)).as_posix(),
            digest=prepared_digest(Path(builder.data_path), artifact),
            **facts,
        )

    def _supported(self) -> tuple["DatasetBuilder", tuple[str, ...]]:
        """The builder, and the names of the image and the label, or of the text."""
        from tensorflow_datasets.core.features import FeaturesDict, Text

        builder = find_builder(self.settings.dataset, self.settings.tfds_data_dir)
        match builder.info.features:
            case FeaturesDict() as features if len(features) == 1 and isinstance(*features.values(), Text):
                return builder, tuple(features)
        return builder, supervised_keys(builder)

    def _image_facts(self, builder: "DatasetBuilder", image_key: str, label_key: str) -> dict:
        image, splits = builder.info.features[image_key], builder.info.splits
        num_examples = {split: splits[split].num_examples for split in SPLITS if split in splits}
        return {
            "features": image_spec(image.shape, image.encoding_format or "image"),
            "label_names": tuple(builder.info.features[label_key].names),
            "num_examples": num_examples,
            "test_share": 0.0 if "test" in num_examples else self.settings.test_share,
            "bytes_per_example": builder.info.dataset_size // sum(split.num_examples for split in splits.values()),
        }

    def _text_facts(self, builder: "DatasetBuilder", key: str, artifact: Path) -> dict:
        # Choices are made on [Records] validation_share of train, as for any text.
        texts = {"train": b"", "test": b""}
        for split in [split for split in SPLITS if split in builder.info.splits]:
            examples = builder.as_dataset(split=split).as_numpy_iterator()
            texts["train" if split == "train" else "test"] += b"".join(example[key] for example in examples)
        if not texts["train"]:
            raise _unsupported(self.settings.dataset, "examples in the train split, got none")
        decoded = {split: content.decode() for split, content in texts.items() if content}
        return written_tokens(decoded, artifact, test_share=self.settings.test_share)

    def changed(self, source: Mapping, artifact: Path) -> Iterator[str]:
        """Describe changes of the prepared copy. A missing copy is no change, because the records are still valid."""
        if source["origin"] != TFDS:
            return
        folder = datasets_folder(self.settings.tfds_data_dir) / source["prepared_as"]
        with contextlib.suppress(OSError):
            if (folder / _DESCRIPTIONS[0]).exists() and prepared_digest(folder, artifact) != source["digest"]:
                yield change(str(folder), "changed")


def datasets_folder(data_dir: str) -> Path:
    """The absolute folder of prepared datasets, as TFDS resolves it. ``data_dir`` is [Source] tfds_data_dir."""
    path = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(path).expanduser().absolute()


def prepared_digest(folder: Path, memory: Path | None) -> str:
    """Hex sha256 of the names and contents of a prepared dataset. OSError: a file cannot be read.

    ``memory`` is the source's artifact. See ``files.digests``.
    """
    names = sorted(path.name for path in folder.iterdir() if path.name in _DESCRIPTIONS or ".tfrecord" in path.name)
    file_digests = digests(folder, names, memory)
    if unreadable := [name for name, digest in file_digests.items() if not digest]:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(folder / unreadable[0]))
    return hashlib.sha256(json.dumps(file_digests, sort_keys=True).encode()).hexdigest()


def prepare(builder: "DatasetBuilder", dataset: str) -> None:
    """Download and prepare a dataset if it is not prepared. UnsupportedDatasetError: it has no TFRecord files."""
    from tensorflow_datasets.core import FileFormat
    from tensorflow_datasets.core.download import DownloadConfig, DownloadError
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

    try:
        if not builder.is_prepared():
            _probe_hosts(builder)
            # Google's bucket of prepared copies is left out: files come from the dataset's own source, with its digest.
            builder.download_and_prepare(download_config=DownloadConfig(try_download_gcs=False))
    except NonMatchingChecksumError as error:
        raise DamagedArtifactError(f"{dataset}: the download has an unexpected checksum. {error}") from error
    # TFDS asserts that the files of some datasets were fetched by hand.
    except (DownloadError, AssertionError, OSError) as error:
        # An error of a file names it, unless the disk is full. One of a connection names nothing, or an address.
        is_of_file = "://" not in str(getattr(error, "filename", None) or "://")
        if not is_of_file and getattr(error, "errno", None) not in _DISK_ERRORS:
            raise DatasetUnavailableError(f"{dataset}: the download failed. {error}") from error
        raise StorageError(
            f"{error.filename or builder.data_path}: cannot be written ({error.strerror or error}). "
            "Set [Source] tfds_data_dir to a writable folder with enough free disk space."
        ) from error
    if (file_format := builder.info.file_format) is not FileFormat.TFRECORD:
        raise _unsupported(dataset, f"a copy in TFRecord files, got {file_format} in {builder.data_path}")


def find_builder(dataset: str, data_dir: str) -> "DatasetBuilder":
    """The builder of a dataset. SettingsError: the dataset is unknown, or needs a package that is not installed."""
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(dataset, data_dir=str(Path(data_dir).expanduser()) if data_dir else None)
    except tfds.core.DatasetNotFoundError:
        hint = folder_hint(dataset) or closest(dataset, tfds.list_builders(with_community_datasets=False))
        refuse("Source", "dataset", "the name of a dataset in TensorFlow Datasets", dataset, hint)
    except ImportError as error:
        raise UnsupportedDatasetError(
            f"{dataset}: TensorFlow Datasets needs another package to prepare it ({error}). Install that package."
        ) from error


def supervised_keys(builder: "DatasetBuilder") -> tuple[str, str]:
    """Names of the image and the label feature. UnsupportedDatasetError: it has no uint8 images with class labels."""
    import numpy as np
    from tensorflow_datasets.core.features import ClassLabel, FeaturesDict, Image

    features, keys = builder.info.features, builder.info.supervised_keys or ("image", "label")
    match [features[key] for key in keys if key in features] if isinstance(features, FeaturesDict) else []:
        case [Image() as image, ClassLabel()] if image.np_dtype == np.uint8 and image.shape[-1] in CHANNELS:
            return keys
    raise _unsupported(builder.name, f"a uint8 Image of 1, 3 or 4 channels and a ClassLabel, got {features}")


def _unsupported(dataset: str, expected: str) -> UnsupportedDatasetError:
    return UnsupportedDatasetError(
        f"{dataset}: expected {expected}. Choose another dataset, such as cifar10 or mnist, with [Source] dataset or "
        "--Source-dataset."
    )


def read_prepared(
    info: SourceInfo, location: Location, form: ImageForm, split: str, start: int, stop: int
) -> Iterator[dict]:
    """Read a range of a split. See ``source.read_batches``.

    ``as_dataset`` parses each example separately and takes 1.4 times as long for 50,000 images.
    """
    import tensorflow as tf

    from pipeline.sources.image_files import SIGNATURES, stored_bytes
    from pipeline.sources.reading import batch_size, converted, pixels_of

    builder, channels, num_read = _opened(info.dataset, info.digest, location), info.features[IMAGE].shape[2], 0
    image, label = supervised_keys(builder)
    spec = {image: tf.io.FixedLenFeature([], tf.string), label: tf.io.FixedLenFeature([], tf.int64)}
    plain = SIGNATURES["jpeg"], SIGNATURES["png"]

    def serialized() -> Iterator["tf.Tensor"]:
        for part in builder.info.splits[f"{split}[{start}:{stop}]"].file_instructions:
            records = tf.data.TFRecordDataset(part.filename, buffer_size=_READ_BUFFER_BYTES)
            yield from records.skip(part.skip).take(part.take).batch(batch_size(form))

    def convert(batch: "tf.Tensor") -> dict:
        parsed = tf.io.parse_example(batch, spec)
        images, labels = parsed[image].numpy(), parsed[label].numpy()
        # TFDS gives -1 in a split without labels.
        if labels.min() < 0 or labels.max() >= len(info.label_names):
            raise _unsupported(
                info.dataset,
                f"labels from 0 to {len(info.label_names) - 1}, got {labels.min()} to {labels.max()} in {split}",
            )
        if form.encoding == "raw":
            return {IMAGE: pixels_of(images, form, channels), LABEL: labels}
        stored = [stored_bytes(one, form, is_plain=one.startswith(plain)) for one in images.tolist()]
        return {IMAGE: stored, LABEL: labels}

    try:
        for columns in converted(serialized(), convert):
            num_read += len(columns[LABEL])
            yield columns
        if num_read != stop - start:
            raise ValueError(f"{num_read} examples in [{start}:{stop}]")
    except UnsupportedDatasetError:
        raise
    except (tf.errors.OpError, ValueError) as error:
        cause = str(error).splitlines()[0]
        raise DamagedArtifactError(
            f"{builder.data_path}: the {split} split differs from its dataset_info.json ({cause}). Delete that folder "
            "and run again to prepare the dataset."
        ) from error


@cache
def _opened(dataset: str, digest: str, location: Location) -> "DatasetBuilder":
    builder = find_builder(dataset, location.tfds_data_dir)
    prepare(builder, dataset)
    # Stamps in the artifact spare this worker a reading.
    if prepared_digest(Path(builder.data_path), Path(location.artifact) if location.artifact else None) != digest:
        raise DamagedArtifactError(
            f"{builder.data_path}: the files of {dataset} changed during the run. Run "
            '"tensorcraft run" again to use the present files.'
        )
    return builder


def _datasets_folder(builder: "DatasetBuilder") -> Path:
    """The folder of all prepared datasets, which contains this one by name, configuration and version."""
    return Path(builder.data_path.parents[1 + bool(builder.builder_config)])


def _probe_hosts(builder: "DatasetBuilder") -> None:
    """Check that the host of each file answers, unless the file is in TFDS's folder for manual downloads."""
    import requests

    manual = _datasets_folder(builder) / "downloads" / "manual"
    for url, info in (builder.url_infos or {}).items():
        if (manual / (info.filename or "")).is_file():
            continue
        try:
            requests.head(url, timeout=PROBE_TIMEOUT_SECONDS).close()
        except (requests.RequestException, socket.gaierror) as error:
            raise DatasetUnavailableError(
                f"{url} is unreachable ({type(error).__name__}). Connect to the internet, set [Source] tfds_data_dir "
                f"to the folder of a prepared copy, or download the file to {manual}."
            ) from error
