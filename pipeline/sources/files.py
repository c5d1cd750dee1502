"""Files: single images become a source (the sources' aid): each is looked at once, to its last pixel.

What cannot be decoded is found out here, before anything is written: the number of examples, and with it each one's
place in the shards, is then known. Files are hashed and looked at on all cores.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pipeline import machine, progress
from pipeline.config import SourceSettings, refuse
from pipeline.errors import DamagedArtefactError
from pipeline.records.features import image_spec
from pipeline.sources import words
from pipeline.sources.found import beside, dataset_name, files_folder, find
from pipeline.sources.listing import ListedSplit, Listing, file_digest
from pipeline.sources.pictures import Picture, UndecodableError, inspect

_logger = logging.getLogger(__name__)


def list_files(settings: SourceSettings) -> tuple[dict, Listing]:
    """Look at every image.

    Returns:
        The fields of ``SourceInfo`` but its origin, and the listing.

    Raises:
        SettingsError: there is nothing of the kind at the path, or too little of it.
        DamagedArtefactError: images cannot be used, and ``on_bad_example`` is "fail", or they are more than
            ``max_bad_share``; names each.
    """
    folder = files_folder(settings)
    found, present = find(settings)
    wanted = [path for entries in found.examples.values() for path, _ in entries]
    pictures, bad = _look(folder, wanted)
    _judge(settings, bad, len(wanted))
    splits = {
        split: _listed([entry for entry in entries if entry[0] in pictures], pictures, present, found.label_names)
        for split, entries in found.examples.items()
    }
    splits = {split: listed for split, listed in splits.items() if listed.paths}
    if "train" not in splits:
        refuse("Source", "path", "images of the train split that can be decoded", settings.path)
    skipped = {path: (*present.get(path, (0, 0)), reason) for reason, paths in bad.items() for path in paths}
    listing = Listing(splits, skipped, {name: file_digest(folder / name) for name in beside(settings)})
    # What is not plain is made a JPEG where it was one, else a PNG.
    encodings = {"jpeg" if picture.encoding == "jpeg" else "png" for picture in pictures.values()}
    shapes = {(picture.height, picture.width) for picture in pictures.values()}
    sizes = next(iter(shapes)) if len(shapes) == 1 else (None, None)
    channels = 1 if all(picture.grey for picture in pictures.values()) else 3
    examples = sum(len(listed.paths) for listed in splits.values())
    info = {
        "dataset": dataset_name(settings),
        "version": "1",
        "features": image_spec((*sizes, channels), encodings.pop() if len(encodings) == 1 else "image"),
        "label_names": found.label_names,
        "num_examples": {split: len(listed.paths) for split, listed in splits.items()},
        "test_share": 0.0 if "test" in splits else settings.test_share,
        "bytes_per_example": sum(sum(listed.sizes) for listed in splits.values()) // examples,
        "digest": listing.digest(),
    }
    return info, listing


def _look(folder: Path, paths: Sequence[str]) -> tuple[dict[str, Picture], dict[str, list[str]]]:
    """Path → what it holds, and reason → paths of what cannot be used."""
    root = os.path.realpath(folder)

    def one(path: str) -> Picture | str:
        place = os.path.join(folder, path)
        if not f"{os.path.realpath(place)}".startswith(f"{root}{os.sep}"):
            return words.LEADS_OUT
        try:
            with open(place, "rb") as file:
                return inspect(file.read())
        except UndecodableError as error:
            return str(error)
        except OSError as error:
            return words.cannot_be_read(error.strerror)

    pictures, bad = {}, {}
    with ThreadPoolExecutor(machine.granted_cores()) as pool:
        for number, (path, seen) in enumerate(zip(paths, pool.map(one, paths), strict=True), start=1):
            if isinstance(seen, Picture):
                pictures[path] = seen
            else:
                bad.setdefault(seen, []).append(path)
            progress.tell("images", number, len(paths))
    return pictures, bad


def _judge(settings: SourceSettings, bad: Mapping[str, Sequence[str]], total: int) -> None:
    count = sum(map(len, bad.values()))
    if not count:
        return
    listed = words.bad_examples(bad)
    if settings.on_bad_example == "fail":
        raise DamagedArtefactError(words.refused_examples(count, total, settings.path, listed))
    if count > settings.max_bad_share * total:
        raise DamagedArtefactError(words.too_many_bad(count, total, settings.max_bad_share, settings.path, listed))
    _logger.warning("%d of %d images are left out:\n%s", count, total, listed)


def _listed(
    entries: Sequence[tuple[str, str]],
    pictures: Mapping[str, Picture],
    present: Mapping[str, tuple[int, int]],
    label_names: Sequence[str],
) -> ListedSplit:
    numbers = {name: number for number, name in enumerate(label_names)}
    return ListedSplit(
        paths=[path for path, _ in entries],
        labels=[numbers[label] for _, label in entries],
        sizes=[present[path][0] for path, _ in entries],
        mtimes=[present[path][1] for path, _ in entries],
        digests=[pictures[path].digest for path, _ in entries],
        plain=[pictures[path].plain for path, _ in entries],
    )
