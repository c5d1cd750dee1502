"""Files: single images become a source (the sources' aid): each is looked at once, to its last pixel.

What cannot be decoded is found out here, before anything is written: the number of examples, and with it each one's
place in the shards, is then known. Files are hashed and looked at on all cores: by threads, or, where there are many,
by processes. Pillow parses headers in Python, which threads do not share: of small images they look at fewer a second
than one alone does.
"""

import hashlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from pipeline import machine, progress
from pipeline.config.data import FULL_RANGE, SourceSettings
from pipeline.config.refusal import refuse
from pipeline.errors import DamagedArtefactError
from pipeline.records.features import image_spec
from pipeline.sources import words
from pipeline.sources.folder import warn_of_empty_folders
from pipeline.sources.found import beside, dataset_name, files_folder, find
from pipeline.sources.listing import ListedSplit, Listing, Skipped, Stamp, file_digest, is_inside, read_file
from pipeline.sources.pictures import Picture, UndecodableError, inspect, quiet

# Processes start in about a second, in which threads look at some thousand files.
MANY_FILES = 10_000
_FILES_AT_ONCE = 100
# Of the values that 16 bits can be: 10, 12 and 14 bits use a 64th to a quarter of them.
_LITTLE_OF_THE_RANGE = 0.25

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
    pictures, skipped = _look(folder, wanted, present)
    if found.taken_for:
        _logger.info(words.taken_for(found.taken_for))
    if found.ignored:
        _logger.info(words.ignored(found.ignored))
    if settings.dataset == "folder":
        warn_of_empty_folders(folder, found)
    _judge(settings, skipped, len(wanted))
    splits = {
        split: _listed([entry for entry in entries if entry[0] in pictures], pictures, present, found.label_names)
        for split, entries in found.examples.items()
    }
    splits = {split: listed for split, listed in splits.items() if listed.paths}
    if "train" not in splits:
        refuse("Source", "path", "images of the train split that can be decoded", settings.path)
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
        "bytes_per_example": sum(size for listed in splits.values() for size, *_ in listed.stamps) // examples,
        "smallest_side": min(min(picture.width, picture.height) for picture in pictures.values()),
        "value_range": _value_range(settings, [one.levels for one in pictures.values() if one.levels]),
        "skipped": dict(sorted(Counter(one.reason for one in skipped).items())),
        "digest": listing.digest(),
    }
    return info, listing


def _value_range(settings: SourceSettings, levels: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The values of 16 bits that become black and white, by the least and the greatest of each such image."""
    if not levels:
        return FULL_RANGE
    low, high = min(low for low, _ in levels), max(high for _, high in levels)
    if settings.value_range == "data":
        return (low, high) if low < high else FULL_RANGE
    if settings.value_range == "full":
        if high - low <= FULL_RANGE[1] * _LITTLE_OF_THE_RANGE:
            _logger.warning(words.dark(len(levels), low, high, (high - low) / FULL_RANGE[1]))
        return FULL_RANGE
    low, high = map(int, settings.value_range.split(","))
    return low, high


def _look(folder: Path, paths: Sequence[str], present: Mapping[str, Stamp]) -> tuple[dict[str, Picture], list[Skipped]]:
    """Path → what it holds, and what cannot be used, both in the order of the paths."""
    pictures, skipped = {}, []
    with quiet(), _workers(len(paths)) as pool:
        try:
            found = pool.map(_Look(folder), paths, chunksize=_FILES_AT_ONCE)
            for number, (path, seen) in enumerate(zip(paths, found, strict=True), start=1):
                if isinstance(seen, Picture):
                    pictures[path] = seen
                else:
                    skipped.append(Skipped(path, present.get(path, ()), *seen))
                progress.tell("images", number, len(paths), unit="images")
        except BaseException:
            # An interrupt does not wait for the files that are left.
            pool.shutdown(cancel_futures=True)
            raise
    return pictures, skipped


def _workers(num_files: int) -> Executor:
    cores = machine.granted_cores()
    if num_files < MANY_FILES or cores == 1:
        return ThreadPoolExecutor(cores)
    # Not forked from here, where other threads may hold a lock.
    context = multiprocessing.get_context("forkserver")
    return ProcessPoolExecutor(cores, mp_context=context, initializer=_start_worker)


def _start_worker() -> None:
    warnings.simplefilter("ignore")
    # An interrupt at the terminal reaches all processes: the parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A worker waits for files, even of a parent that was killed.
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


class _Look:
    """Looks at one image: what it holds, or its digest, and the reason why it cannot be used with a detail."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._root = str(folder), os.path.realpath(folder)
        self._is_inside: dict[str, bool] = {}

    def __call__(self, path: str) -> Picture | tuple[str, str, str]:
        place = os.path.join(self._folder, path)
        if self._leads_out(place):
            return "", words.LEADS_OUT, ""
        try:
            content = read_file(place)
        except FileNotFoundError:
            return "", words.MISSING, ""
        except OSError as error:
            return "", words.UNREADABLE, error.strerror
        try:
            return inspect(content)
        except UndecodableError as error:
            return hashlib.sha256(content).hexdigest(), error.reason, error.detail

    def _leads_out(self, place: str) -> bool:
        # Few files are links: to look at their folders, each once, costs a tenth.
        if os.path.islink(place):
            return not is_inside(os.path.realpath(place), self._root)
        parent = os.path.dirname(place)
        if parent not in self._is_inside:
            self._is_inside[parent] = is_inside(os.path.realpath(parent), self._root)
        return not self._is_inside[parent]


def _judge(settings: SourceSettings, skipped: Sequence[Skipped], total: int) -> None:
    if not skipped:
        return
    listed = words.bad_examples({one.path: (one.reason, one.detail) for one in skipped})
    if settings.on_bad_example == "fail":
        raise DamagedArtefactError(words.refused_examples(len(skipped), total, settings.path, listed))
    if len(skipped) > settings.max_bad_share * total:
        raise DamagedArtefactError(
            words.too_many_bad(len(skipped), total, settings.max_bad_share, settings.path, listed)
        )
    _logger.warning(words.left_out(len(skipped), total, listed))


def _listed(
    entries: Sequence[tuple[str, str]],
    pictures: Mapping[str, Picture],
    present: Mapping[str, Stamp],
    label_names: Sequence[str],
) -> ListedSplit:
    numbers = {name: number for number, name in enumerate(label_names)}
    return ListedSplit(
        paths=[path for path, _ in entries],
        labels=[numbers[label] for _, label in entries],
        stamps=[present[path] for path, _ in entries],
        digests=[pictures[path].digest for path, _ in entries],
        plain=[pictures[path].plain for path, _ in entries],
    )
