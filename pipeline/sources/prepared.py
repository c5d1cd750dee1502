"""Prepared copies: what tells one prepared TFDS dataset from another, without an import of TFDS (the sources' aid).

A dataset that is prepared anew, or by hand, can have the name, version, counts and sizes of the one before and other
bytes. Reading it all would take seconds at every start: what was read once is remembered by its stamp.
"""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from pipeline.sources.listing import digests

_DESCRIPTIONS = ("dataset_info.json", "features.json")


def prepared_digest(folder: Path, memory: Path | None = None) -> str:
    """Hex sha256 over name and content of the descriptions and the TFRecord files in a prepared dataset's folder.

    Args:
        folder: of the prepared dataset.
        memory: the source's artefact, where it is remembered which files were digested.

    Raises:
        OSError: there is no such folder, or a file of it cannot be read.
    """
    present = {path.name for path in folder.iterdir()}
    names = sorted(name for name in present if name in _DESCRIPTIONS or ".tfrecord" in name)
    found = digests(folder, names, memory)
    if unreadable := [name for name, digest in found.items() if not digest]:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(folder / unreadable[0]))
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


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


def changed_copy(source: Mapping, data_dir: str, memory: Path | None = None) -> Path | None:
    """The folder of a source's prepared copy where that is no longer what the source was made from, else None.

    A copy that is gone has not changed: the records that were made of it are as good as before.

    Args:
        source: the JSON of a SourceInfo.
        data_dir: [Source] tfds_data_dir, "" for TFDS's own default.
        memory: as in ``prepared_digest``.
    """
    if source["origin"] != "tfds":
        return None
    folder = datasets_folder(data_dir) / source["prepared_as"]
    with contextlib.suppress(OSError):
        if (folder / _DESCRIPTIONS[0]).exists() and prepared_digest(folder, memory) != source["digest"]:
            return folder
    return None
