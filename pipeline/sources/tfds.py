"""TensorFlow Datasets as a source: finding a dataset, preparing it once, saying what it holds.

A prepared copy is used without touching the network. Before a download the hosts are asked once whether they answer:
TFDS itself retries an unreachable host for more than three minutes, too long for ``origin = auto`` to find out that
there is no network.
"""

import errno
import socket
import urllib.error
from pathlib import Path

import numpy as np
import requests
import tensorflow_datasets as tfds

from pipeline.config.data import SourceSettings, folder_hint
from pipeline.config.refusal import closest, refuse
from pipeline.errors import (
    DamagedArtefactError,
    DatasetUnavailableError,
    StorageError,
    UnsupportedDatasetError,
)
from pipeline.records.features import CHANNELS, image_spec
from pipeline.records.keys import SPLITS
from pipeline.sources import text, words
from pipeline.sources.prepared import prepared_digest

DatasetBuilder = tfds.core.DatasetBuilder

PROBE_TIMEOUT_SECONDS = 10

# Of a file that is open already, so that the error names none.
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG, errno.EIO)


def prepare(settings: SourceSettings, folder: Path | None = None) -> dict:
    """Make sure the dataset is prepared and say what it holds.

    Args:
        settings: what is asked for.
        folder: where a text goes.

    Returns:
        The fields of ``SourceInfo`` but its origin.

    Raises:
        SettingsError: TFDS knows no such dataset.
        UnsupportedDatasetError: not uint8 image classification with a train split.
        DatasetUnavailableError: it is not prepared and cannot be downloaded.
        DamagedArtefactError: a downloaded file's digest is not the expected one.
    """
    dataset, data_dir = settings.dataset, settings.tfds_data_dir
    # Asked before a download: what cannot be used need not be fetched.
    text_key = text_feature(_builder(dataset, data_dir))
    if not text_key:
        image_key, label_key = supervised_keys(_builder(dataset, data_dir))
    builder = prepared_builder(dataset, data_dir)
    features, splits = builder.info.features, builder.info.splits
    if "train" not in splits:
        raise _unsupported(dataset, f"a train split, it has {', '.join(splits) or 'none'}")
    if text_key:
        return _of_text(builder, settings, text_key, folder)
    num_examples = {split: splits[split].num_examples for split in SPLITS if split in splits}
    image = features[image_key]
    return {
        "dataset": dataset,
        "version": str(builder.version),
        "features": image_spec(image.shape, image.encoding_format or "image"),
        "label_names": tuple(features[label_key].names),
        "num_examples": num_examples,
        "test_share": 0.0 if "test" in num_examples else settings.test_share,
        "bytes_per_example": builder.info.dataset_size // sum(split.num_examples for split in splits.values()),
        **_copy_facts(builder),
    }


def _copy_facts(builder: DatasetBuilder) -> dict:
    return {
        "prepared_as": builder.data_path.relative_to(_datasets_folder(builder)).as_posix(),
        "digest": prepared_digest(Path(builder.data_path)),
    }


def text_feature(builder: DatasetBuilder) -> str:
    """The name of the feature of a dataset that is text and nothing else; "" of any other dataset."""
    features = builder.info.features
    names = [*features] if isinstance(features, tfds.features.FeaturesDict) else []
    return names[0] if len(names) == 1 and isinstance(features[names[0]], tfds.features.Text) else ""


def _of_text(builder: DatasetBuilder, settings: SourceSettings, key: str, folder: Path | None) -> dict:
    """The fields of ``SourceInfo`` of a text; its tokens go to ``folder``.

    Its test split is its validation and its test split, in this order: what is chosen on is [Records] validation_share
    of train, here as in any text.
    """
    parts = {"train": ("train",), "test": ("validation", "test")}
    texts = {
        split: b"".join(_texts(builder, key, part) for part in of_it if part in builder.info.splits)
        for split, of_it in parts.items()
    }
    try:
        decoded = {split: content.decode() for split, content in texts.items() if content}
    except UnicodeDecodeError as error:
        raise _unsupported(settings.dataset, f"text in UTF-8 ({error})") from error
    if "train" not in decoded:
        raise _unsupported(settings.dataset, "a train split that is not empty")
    info, tokens = text.described(decoded, test_share=settings.test_share)
    if folder:
        text.write_tokens(folder, tokens)
    return {"dataset": settings.dataset, "version": str(builder.version), **info, **_copy_facts(builder)}


def _texts(builder: DatasetBuilder, key: str, split: str) -> bytes:
    """All texts of a split, joined in their order."""
    return b"".join(example[key] for example in builder.as_dataset(split=split).as_numpy_iterator())


def availability(dataset: str, data_dir: str) -> str:
    """Where ``dataset`` is prepared, or that it can be downloaded; changes nothing.

    Raises:
        The same as ``prepare``, but for what only a download shows.
    """
    builder = _builder(dataset, data_dir)
    if not text_feature(builder):
        supervised_keys(builder)
    if builder.is_prepared():
        return words.prepared(dataset, builder.data_path)
    _probe_hosts(builder)
    return words.downloadable(dataset, builder.data_path)


def prepared_builder(dataset: str, data_dir: str) -> DatasetBuilder:
    """The builder of a dataset that is prepared, or is now.

    Raises:
        The same as ``prepare``; UnsupportedDatasetError also where the copy was not prepared as TFRecord files.
    """
    builder = _builder(dataset, data_dir)
    if not builder.is_prepared():
        _download(builder, dataset)
    if builder.info.file_format is not tfds.core.FileFormat.TFRECORD:
        raise _unsupported(
            dataset, f"a copy prepared as TFRecord files, {builder.data_path} is {builder.info.file_format}"
        )
    return builder


def _builder(dataset: str, data_dir: str) -> DatasetBuilder:
    try:
        return tfds.builder(dataset, data_dir=str(Path(data_dir).expanduser()) if data_dir else None)
    except tfds.core.DatasetNotFoundError:
        hint = folder_hint(dataset) or closest(dataset, tfds.list_builders(with_community_datasets=False))
        refuse("Source", "dataset", "a dataset that TensorFlow Datasets knows", dataset, hint)
    except ImportError as error:
        raise UnsupportedDatasetError(
            f"{dataset}: TensorFlow Datasets needs a package that is not installed to prepare it ({error})."
        ) from error


def supervised_keys(builder: DatasetBuilder) -> tuple[str, str]:
    """Names of the image and the label feature.

    Raises:
        UnsupportedDatasetError: there is no such pair of a uint8 image and a class label.
    """
    features = builder.info.features
    keys = builder.info.supervised_keys or ("image", "label")
    kinds = (tfds.features.Image, tfds.features.ClassLabel)
    if (
        not isinstance(features, tfds.features.FeaturesDict)
        or len(keys) != 2
        or any(key not in features for key in keys)
    ):
        raise _unsupported(builder.name, f"an image and a label, it has {features}")
    if not all(isinstance(features[key], kind) for key, kind in zip(keys, kinds, strict=True)):
        raise _unsupported(builder.name, f"an Image and a ClassLabel, its pair is {[features[key] for key in keys]}")
    image = features[keys[0]]
    if image.np_dtype != np.uint8 or image.shape[-1] not in CHANNELS:
        raise _unsupported(builder.name, f"uint8 images of 1, 3 or 4 channels, it has {image.np_dtype} {image.shape}")
    return keys


def _unsupported(dataset: str, expected: str) -> UnsupportedDatasetError:
    return UnsupportedDatasetError(words.unsupported(dataset, expected))


def _download(builder: DatasetBuilder, dataset: str) -> None:
    _probe_hosts(builder)
    # Google's bucket of prepared copies is left out: files come from the dataset's own source, with its digest.
    config = tfds.download.DownloadConfig(try_download_gcs=False)
    try:
        builder.download_and_prepare(download_config=config)
    except (tfds.download.DownloadError, requests.RequestException, urllib.error.URLError) as error:
        raise DatasetUnavailableError(f"the download of {dataset} failed: {error}") from error
    except tfds.core.download.download_manager.NonMatchingChecksumError as error:
        raise DamagedArtefactError(f"the download of {dataset} is not what was expected: {error}") from error
    except OSError as error:
        if not _is_of_a_file(error):
            raise DatasetUnavailableError(f"the download of {dataset} failed: {error}") from error
        raise StorageError(
            f"{error.filename or builder.data_path}: cannot be written ({error.strerror or error}). "
            "Set [Source] tfds_data_dir to a writable folder with room for the dataset."
        ) from error
    except AssertionError as error:
        # What TFDS raises for a dataset whose files must be fetched by hand.
        raise DatasetUnavailableError(str(error)) from error


def _is_of_a_file(error: OSError) -> bool:
    """Whether the disk is at fault: what fails on a file names it, unless the disk is full; a connection names none."""
    return error.filename is not None or error.errno in _DISK_ERRORS


def _datasets_folder(builder: DatasetBuilder) -> Path:
    """The folder of all prepared datasets, in which this one lies by name, configuration and version."""
    return Path(builder.data_path.parents[1 + bool(builder.builder_config)])


def _probe_hosts(builder: DatasetBuilder) -> None:
    """Ask each file's host for a sign of life, unless the files lie in TFDS's folder for manual downloads."""
    infos = builder.url_infos or {}
    manual = _datasets_folder(builder) / "downloads" / "manual"
    for url, info in infos.items():
        if (manual / (info.filename or "")).is_file():
            continue
        try:
            requests.head(url, timeout=PROBE_TIMEOUT_SECONDS).close()
        except (requests.RequestException, socket.gaierror) as error:
            raise DatasetUnavailableError(
                f"{url} is not reachable ({type(error).__name__}). Connect to the network, point [Source] "
                f"tfds_data_dir (or TFDS_DATA_DIR) at a prepared copy, or put the file into {manual}."
            ) from error
