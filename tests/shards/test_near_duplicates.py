"""Test images that differ little from a train image: the hash, the search, and the findings of records."""

import csv

import numpy as np
import pytest
from image_files import encoded, write_folder
from PIL import Image

from pipeline.records.features import NEAR_DUPLICATES_NAME


def setup_module() -> None:
    global HASH_WORDS, MAX_BITS, image_hashes, near_duplicates
    from pipeline.shards.data_checks import HASH_WORDS, MAX_BITS, image_hashes, near_duplicates


def photograph(number: int, size=(240, 180)) -> Image.Image:
    """Soft colors, unlike those of any other number."""
    rng = np.random.default_rng(number)
    return Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize(size, Image.Resampling.BICUBIC)


CHANGES = {
    "smaller": lambda image: encoded(image.resize((160, 120)), "JPEG"),
    "other sides": lambda image: encoded(image.resize((200, 200)), "JPEG"),
    "low quality": lambda image: encoded(image, "JPEG", quality=30),
    "gray": lambda image: encoded(image.convert("L"), "JPEG"),
    "darker": lambda image: encoded(image.point(lambda value: value * 0.8), "JPEG"),
    "png": lambda image: encoded(image, "PNG"),
}


def bits_between(one, other):
    return int(np.bitwise_count(one ^ other).sum())


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_copy_has_nearly_the_same_hash(change):
    files = [encoded(photograph(number), "JPEG") for number in range(20)]
    copies = [CHANGES[change](photograph(number)) for number in range(20)]
    hashes, copied = image_hashes(files), image_hashes(copies)
    assert max(map(bits_between, hashes, copied)) <= MAX_BITS
    assert min(bits_between(hashes[number], copied[number - 1]) for number in range(20)) > 4 * MAX_BITS


def test_pixels_and_files_of_the_same_image_have_the_same_hash():
    image = photograph(1, (32, 32))
    pixels = np.stack([np.asarray(image)] * 3)
    (of_file,) = image_hashes([encoded(image, "PNG")])
    assert all(bits_between(one, of_file) <= 4 for one in image_hashes(pixels))
    gray = np.asarray(image.convert("L"))[None, ..., None]
    assert bits_between(image_hashes(gray)[0], of_file) <= 4


def test_the_search_finds_what_a_comparison_of_all_pairs_finds(rng):
    train = rng.integers(0, 2**16, (3_000, HASH_WORDS), np.uint16)
    test = rng.integers(0, 2**16, (500, HASH_WORDS), np.uint16)
    flipped = rng.integers(0, 30, 250)
    for position, count in enumerate(flipped.tolist()):
        bits = np.unpackbits(train[position].view(np.uint8))
        bits[rng.choice(len(bits), count, replace=False)] ^= 1
        test[position] = np.packbits(bits).view(np.uint16)
    test[499] = 0
    distances = np.bitwise_count(train[None] ^ test[:, None]).sum(axis=2)
    nearest = distances.argmin(axis=1)
    expected = {
        position: (int(nearest[position]), int(distances[position].min()))
        for position in range(499)
        if distances[position].min() <= MAX_BITS
    }
    assert near_duplicates(train, test) == expected
    assert len(expected) == (flipped <= MAX_BITS).sum() > 50


def test_images_of_one_color_do_not_slow_the_search_down():
    flat = np.full((20_000, 8, 8, 3), 90, np.uint8)
    hashes = image_hashes(flat)
    assert len(np.unique(hashes, axis=0)) == 1
    # All pairs of 16 words are six billion candidates.
    found = near_duplicates(hashes, hashes)
    assert found[19_999] == (0, 0)
    black = image_hashes(np.zeros((3, 8, 8, 1), np.uint8))
    assert near_duplicates(black, black) == {}


@pytest.fixture(scope="module", params=["raw", "files"])
def similar(request, tmp_path_factory, write_records_of):
    """Records with an equal test image, two changed ones, and one that is its own mirror image's neighbor."""
    folder = tmp_path_factory.mktemp("similar") / "images"
    photographs = {f"{number}.jpg": encoded(photograph(number), "JPEG") for number in range(40)}
    write_folder(folder / "train", cats=photographs, dogs={"d.jpg": encoded(photograph(50), "JPEG")})
    test = {f"{number}.jpg": encoded(photograph(number), "JPEG") for number in range(60, 80)}
    test |= {"equal.jpg": photographs["3.jpg"], "small.jpg": CHANGES["smaller"](photograph(7))}
    write_folder(folder / "test", cats=test, dogs={"gray.jpg": CHANGES["gray"](photograph(9))})
    size = {"raw": {"image_size": 48, "encoding": "raw"}, "files": {"image_size": 96}}[request.param]
    return write_records_of(folder, **size)


def test_similar_test_images_are_listed_beside_equal_ones(similar):
    findings = similar.manifest["findings"]
    paths = [path for path, (split, _) in similar.examples().items() if split == "test"]
    assert {paths[place] for place in findings["near_test_in_train"]} == {"test/cats/small.jpg", "test/dogs/gray.jpg"}
    assert {paths[place] for place in findings["test_in_train"]} == {"test/cats/equal.jpg"}
    with (similar.folder / NEAR_DUPLICATES_NAME).open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert {(row["test_name"], row["train_name"]) for row in rows} == {
        ("test/cats/small.jpg", "train/cats/7.jpg"),
        ("test/dogs/gray.jpg", "train/cats/9.jpg"),
    }
    assert all(paths[int(row["test_place"])] == row["test_name"] for row in rows)
    assert NEAR_DUPLICATES_NAME in [entry["name"] for entry in similar.manifest["files"]]
    warning = dict(similar.manifest["warnings"])["Test images that resemble train images"]
    assert warning.startswith("2 of 23 test images differ from a train image in little more than size, quality,")
