"""Checks of a dataset for properties that make its metrics unreliable, and warnings about them.

Images with equal 64-bit fingerprints count as equal. In a dataset of a million images, the probability of a collision
is one in thirty million.

The perceptual hash of an image contains the signs of the 16 × 16 lowest frequencies of its gray values, like pHash
(Zauner 2010) with more bits. Another size, quality, color or brightness changes few of the bits (docs/LOG.md).
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import machine
from pipeline.errors import message
from pipeline.records.features import DUPLICATES_NAME, NEAR_DUPLICATES_NAME
from pipeline.sources.image_files import gray_pixels

# With fewer examples, a model learns little about a label, and the test split shows little.
FEW_EXAMPLES = 10
# Ratio of the largest to the smallest label of the train split.
HEAVY_IMBALANCE = 10
_MAX_LISTED = 10
_SIDE = 16
#: Number of 16-bit words of a hash.
HASH_WORDS = _SIDE
# Two hashes that differ in fewer bits than they have words are equal in at least one word.
MAX_BITS = HASH_WORDS - 1
# Words of diagonals are more evenly distributed than those of rows, so they have a twentieth of the candidates.
_ROWS, _COLUMNS = np.divmod(np.arange(_SIDE**2), _SIDE)
_BIT_ORDER = np.lexsort((_ROWS, (_ROWS + _COLUMNS) % _SIDE))
# Side of decoded images, so that libjpeg skips most of the work.
_DECODED_SIDE = 64
# A candidate takes about 100 bytes.
_CANDIDATES_AT_ONCE = 400_000
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def check_data(
    examples: Mapping[str, np.ndarray],
    names: Mapping[str, Sequence[str]],
    label_names: Sequence[str],
    label_counts: Mapping[str, Mapping[str, int]],
    folder: Path,
) -> dict:
    """Check the examples, and write duplicates.csv and near_duplicates.csv into ``folder`` if they have rows.

    ``examples`` are ``summary.KEPT_FIELDS`` (examples,) of each split, in the order of the records, and ``names`` the
    paths or keys of the examples of the source. ``label_names`` is empty if examples have no labels. ``label_counts``
    are the numbers of examples by split and label, or of tokens.

    Returns ``never_trained_on`` and ``few_examples``, which map a label or token to a number. ``imbalance`` is the name
    and number of the largest and smallest label in train, or null. ``two_labels`` is the number of images with several
    labels, and ``duplicates`` that of copies. ``test_in_train`` lists positions in test of images that are in train,
    and ``near_test_in_train`` those of other images that differ little from one in train.
    """
    train, test = label_counts["train"], label_counts.get("test", {})
    # Several labels, and values, have no name.
    groups, name_of = _equal(examples), dict(enumerate(label_names))
    # One row per example. Equal images share a number.
    rows = [
        (number, split, position, name_of.get(example["label"], ""), names[split][example["index"]])
        for number, group in enumerate(groups)
        for split, position in group
        for example in (examples[split][position],)
    ]
    if rows:
        write_rows(folder / DUPLICATES_NAME, ("image", "split", "place", "label", "name"), rows)
    test_in_train = sorted(
        position
        for group in groups
        if any(split == "train" for split, _ in group)
        for split, position in group
        if split == "test"
    )
    of_train, of_test, equal = examples["train"], examples.get("test", examples["train"][:0]), {*test_in_train}
    near_rows = [
        (position, names["test"][of_test[position]["index"]], names["train"][of_train[other]["index"]], bits)
        for position, (other, bits) in near_duplicates(of_train["image_hash"], of_test["image_hash"]).items()
        if position not in equal
    ]
    if near_rows:
        write_rows(folder / NEAR_DUPLICATES_NAME, ("test_place", "test_name", "train_name", "bits"), near_rows)
    total = {name: sum(counts[name] for counts in label_counts.values()) for name in label_names}
    largest, smallest = ([*choose(train.items(), key=lambda item: item[1], default=("", 0))] for choose in (max, min))
    is_heavy = label_names and largest[1] and largest[1] >= HEAVY_IMBALANCE * smallest[1]
    return {
        "few_examples": {name: count for name, count in total.items() if count < FEW_EXAMPLES},
        "imbalance": {"largest": largest, "smallest": smallest} if is_heavy else None,
        "two_labels": sum(
            len({examples[split][position]["label"] for split, position in group}) > 1 for group in groups
        ),
        "duplicates": sum(len(group) - 1 for group in groups),
        "test_in_train": test_in_train,
        "near_test_in_train": [position for position, *_ in near_rows],
        "never_trained_on": {name: count for name, count in test.items() if count and not train.get(name)},
    }


def _equal(examples: Mapping[str, np.ndarray]) -> list[list[tuple[str, int]]]:
    """Groups of equal examples, each as a list of split and position."""
    fingerprints = np.concatenate([fields["fingerprint"] for fields in examples.values()])
    _, group, sizes = np.unique(fingerprints, return_inverse=True, return_counts=True)
    splits, starts = [*examples], np.cumsum([0, *map(len, examples.values())])
    groups: dict[int, list[tuple[str, int]]] = {}
    for index in np.flatnonzero(sizes[group] > 1):
        number = np.searchsorted(starts, index, side="right") - 1
        groups.setdefault(group[index], []).append((splits[number], int(index - starts[number])))
    return [*groups.values()]


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence]) -> None:
    """Write a CSV file. The name of an image file may not be UTF-8."""
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        csv.writer(file).writerows([header, *rows])


def warnings(
    results: Mapping, num_test: int, *, has_labels: bool = True, has_classes: bool = True, noun: str = "image"
) -> list[list[str]]:
    """[headline, explanation] of each warning. Examples without labels are sequences of a text.

    ``has_classes`` is whether examples have one label each, and ``noun`` the name of an example with labels.
    """
    kinds = ("never_trained_on", "few_examples", "imbalance", "two_labels", "test_in_train", "near_test_in_train")
    found = [kind for kind in kinds if results[kind]]
    return [_warning(kind, results[kind], num_test, has_labels, has_classes, noun).split("\n") for kind in found]


@message
def _warning(kind: str, result: Any, num_test: int, has_labels: bool, has_classes: bool, noun: str) -> str:
    files = "The file duplicates.csv next to the records lists them."
    without = " The evaluation also states the accuracy without them." if has_classes else ""
    if kind == "never_trained_on":
        # Control characters as string literals.
        counts = {name if name.isprintable() and name.strip() else ascii(name): n for name, n in result.items()}
        headline = f"{'Labels' if has_labels else 'Characters'} of the test split that are not in the train split"
        return f"{headline}\n{_listed(counts)}. No model can learn them."
    if kind == "few_examples":
        return f"Labels with fewer than ten examples\n{_listed(result)}. These are too few to train or to evaluate on."
    if kind == "imbalance":
        (large, most), (small, least) = result["largest"], result["smallest"]
        reason = f"The train split has {most:,} of {large} and {least:,} of {small}, at least ten times as many"
        remedy = f"Read the recall of each label{', and try [Train] class_weight = balanced' * has_classes}."
        return f"Very unequal labels\n{reason}. Accuracy shows little about the rare labels. {remedy}"
    if kind == "two_labels":
        examples = f"1 {noun} has" if result == 1 else f"{result:,} {noun}s have"
        return f"The same {noun} with two labels\n{examples} more than one label. {files}"
    share = f"{len(result):,} of {num_test:,} test"
    if kind == "near_test_in_train":
        share = f"{share} images differ from a train image in little more than size, quality, brightness or color"
        files = files.replace(DUPLICATES_NAME, NEAR_DUPLICATES_NAME)
        return f"Test images that resemble train images\n{share}. {files}{without}"
    examples = f"{noun}s" if has_labels else "sequences"
    share = f"{share} {examples} are also in the train split{', with the same bytes' * has_labels}"
    return f"Test {examples} in the train split\n{share}.{without} {files}"


@message
def _listed(counts: Mapping[str, int]) -> str:
    listed = ", ".join(f"{name} ({count:,})" for name, count in [*counts.items()][:_MAX_LISTED])
    return listed + (f" and {len(counts) - _MAX_LISTED:,} more" if len(counts) > _MAX_LISTED else "")


def image_hashes(images: np.ndarray | Sequence[bytes]) -> np.ndarray:
    """Hashes of images, uint16 (batch, HASH_WORDS), from pixels or files. A black image has the hash 0."""
    if isinstance(images, np.ndarray):
        pixels = images.astype(np.float32)
        return _signs(pixels @ _LUMA if images.shape[-1] == len(_LUMA) else pixels[..., 0])

    def of_file(content: bytes) -> np.ndarray:
        return _signs(gray_pixels(content, _DECODED_SIDE)[None].astype(np.float32))

    with ThreadPoolExecutor(machine.granted_cores()) as pool:
        return np.concatenate([*pool.map(of_file, images)])


def near_duplicates(train: np.ndarray, test: np.ndarray) -> dict[int, tuple[int, int]]:
    """Position in test → nearest position in train, and the number of different bits, at most MAX_BITS.

    Images that are too different are left out, and so are black ones. Arguments are those of ``image_hashes``.
    """
    is_black, none = ~test.any(axis=1), np.iinfo(np.int64).max
    # Number of bits and position, as one number that is smallest for the nearest image.
    nearest = np.full(len(test), none)
    train, first = np.unique(train, axis=0, return_index=True)
    for word in range(HASH_WORDS):
        order = np.argsort(train[:, word], kind="stable")
        values = train[order, word]
        starts = np.searchsorted(values, test[:, word], side="left")
        counts = np.where(is_black, 0, np.searchsorted(values, test[:, word], side="right") - starts)
        # A part has at least one test image.
        parts = np.cumsum(counts) // _CANDIDATES_AT_ONCE
        for part in np.split(np.arange(len(test)), np.flatnonzero(np.diff(parts)) + 1):
            positions = np.repeat(part, counts[part])
            offsets = np.arange(len(positions)) - np.repeat(np.cumsum(counts[part]) - counts[part], counts[part])
            others = order[np.repeat(starts[part], counts[part]) + offsets]
            bits = np.bitwise_count(train[others] ^ test[positions]).sum(axis=1)
            is_near = bits <= MAX_BITS
            found = (bits[is_near].astype(np.int64) << 48) + first[others[is_near]]
            np.minimum.at(nearest, positions[is_near], found)
    positions = np.flatnonzero(nearest < none)
    bits, others = nearest[positions] >> 48, nearest[positions] & (1 << 48) - 1
    return dict(zip(positions.tolist(), zip(others.tolist(), bits.tolist(), strict=True), strict=True))


def _signs(gray: np.ndarray) -> np.ndarray:
    """Hashes of gray images, float32 (batch, height, width)."""
    frequencies = _waves(gray.shape[1]) @ gray @ _waves(gray.shape[2]).T
    # Rounding errors of images of one color are smaller.
    bits = (frequencies > 1e-3 * gray[0].size).reshape(len(gray), -1)[:, _BIT_ORDER]
    return np.packbits(np.ascontiguousarray(bits), axis=1).view("<u2")


@cache
def _waves(size: int) -> np.ndarray:
    """Cosines of the lowest frequencies, float32 (_SIDE, size)."""
    angles = np.outer(np.arange(_SIDE), 2 * np.arange(size) + 1)
    return np.cos(np.pi / (2 * size) * angles).astype(np.float32)
