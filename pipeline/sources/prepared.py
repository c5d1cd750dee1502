"""Prepared copies: what tells one prepared TFDS dataset from another, without an import of TFDS (the sources' aid).

A dataset that is prepared anew, or by hand, can have the name, version and counts of the one before and other bytes.
Reading it all would take seconds at every start; what TFDS wrote about it and the sizes of its files take none.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

_DESCRIPTIONS = ("dataset_info.json", "features.json")


def prepared_digest(folder: Path) -> str:
    """Hex sha256 over the descriptions in a prepared dataset's folder and the name and bytes of each TFRecord file.

    Raises:
        OSError: there is no such folder, or it cannot be read.
    """
    digests = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in _DESCRIPTIONS
        if (folder / name).exists()
    }
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if ".tfrecord" in path.name}
    return hashlib.sha256(json.dumps({**digests, **sizes}, sort_keys=True).encode()).hexdigest()


def is_prepared(dataset: str, data_dir: str) -> bool:
    """Whether there is a prepared copy of a TFDS dataset, be it of another version than TFDS would take.

    Args:
        dataset: by its name, with its configuration and version or without.
        data_dir: [Source] tfds_data_dir, "" for TFDS's own default.
    """
    place = datasets_folder(data_dir) / dataset.partition(":")[0]
    return any(next(place.glob(f"{below}{_DESCRIPTIONS[0]}"), None) for below in ("*/", "*/*/"))


def datasets_folder(data_dir: str) -> Path:
    """Where prepared datasets lie, as TFDS resolves it; absolute, for processes with another environment.

    Args:
        data_dir: [Source] tfds_data_dir, "" for TFDS's own default.
    """
    given = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return Path(given).expanduser().absolute()


def changed_copy(source: Mapping, data_dir: str) -> Path | None:
    """The folder of a source's prepared copy where that is no longer what the source was made from, else None.

    A copy that is gone has not changed: the records that were made of it are as good as before.

    Args:
        source: the JSON of a SourceInfo.
        data_dir: [Source] tfds_data_dir, "" for TFDS's own default.
    """
    if source["origin"] != "tfds":
        return None
    folder = datasets_folder(data_dir) / source["prepared_as"]
    with contextlib.suppress(OSError):
        if (folder / _DESCRIPTIONS[0]).exists() and prepared_digest(folder) != source["digest"]:
            return folder
    return None
