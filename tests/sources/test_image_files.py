"""Odd image files, from the folder to the pixels in the records."""

import io
import sys
import warnings

import numpy as np
import pytest
from image_files import COLOR, GRAY, ODD_FILES, SIDE, encoded, turned, write_folder, written_png
from PIL import Image

from pipeline.errors import SettingsError
from pipeline.predict import Job
from pipeline.records.features import ImageForm
from pipeline.settings.data import SourceSettings
from pipeline.sources.image_files import MAX_PIXELS, UndecodableError, encode_plain, inspect


def setup_module() -> None:
    global stored_content, tf
    import tensorflow as tf

    from pipeline.predict.rows import stored_content


# What a JPEG of the highest quality may differ by; at the edges of the quarters more.
TOLERANCE = 12


def assert_same_picture(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal but for what a JPEG changes, in the middle of each quarter exactly the same color."""
    assert found.shape == expected.shape
    difference = np.abs(found.astype(int) - expected.astype(int))
    middle = difference.reshape(2, SIDE // 2, 2, SIDE // 2, 3)[:, 2:-2, :, 2:-2]
    assert middle.max() <= TOLERANCE, f"differs by {middle.max()}"


def assert_looks_as_expected(name: str, content: bytes, encoding: str) -> None:
    """Check what a record holds of an odd file."""
    if encoding == "raw":
        found = np.frombuffer(content, np.uint8).reshape(SIDE, SIDE, 3)
    else:
        image = Image.open(io.BytesIO(content))
        assert image.format.replace("MPO", "JPEG").lower() == encoding
        assert image.mode in ("RGB", "L")
        found = np.asarray(image.convert("RGB"))
    assert_same_picture(found, ODD_FILES[name][1])


@pytest.fixture(scope="module")
def raw_examples(tmp_path_factory, write_records_of):
    """Name of an odd file → what its record holds, as pixels."""
    names = sorted(ODD_FILES)
    half = len(names) // 2
    files = {name: ODD_FILES[name][0]() for name in names}
    labels = {"a": {name: files[name] for name in names[:half]}, "b": {name: files[name] for name in names[half:]}}
    written = write_records_of(write_folder(tmp_path_factory.mktemp("images"), **labels), encoding="raw")
    # Upright all are of one size: none need be given.
    assert written.info.features["image"].shape == (SIDE, SIDE, 3)
    return {path.partition("/")[2]: example["image"] for path, (_, example) in written.examples().items()}


# What Pillow, which reads the record here, says of a file that is odd.
@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("name", ODD_FILES)
def test_an_odd_file_comes_out_as_it_looks(raw_examples, name):
    assert_looks_as_expected(name, raw_examples[name], "raw")


# Auto stores images as small as these raw.
@pytest.mark.parametrize(("encoding", "stored"), [("auto", "raw"), ("jpeg", "jpeg"), ("png", "png")])
def test_odd_files_come_out_as_they_look_in_every_encoding(write_records_of, tmp_path, encoding, stored):
    # Decoding is the same for all: one for each way to be odd.
    names = ["turned-6.jpg", "cmyk.jpg", "rgba.png", "16-bits.png"]
    files = {name: ODD_FILES[name][0]() for name in names}
    for split, (one, other) in {"train": names[:2], "test": names[2:]}.items():
        write_folder(tmp_path / "images" / split, a={one: files[one]}, b={other: files[other]})
    examples = write_records_of(tmp_path / "images", encoding=encoding).examples()
    assert len(examples) == len(names)
    for path, (_, example) in examples.items():
        assert_looks_as_expected(path.rpartition("/")[2], example["image"], stored)


def test_plain_images_keep_their_bytes(write_records_of, tmp_path):
    files = {f"{number}.jpg": encoded(np.roll(COLOR, number, axis=0), "JPEG") for number in range(9)}
    folder = write_folder(tmp_path / "photos", cats={**files, "turned.jpg": turned(6, "JPEG")}, dogs=files)
    written = write_records_of(folder, image_size=72)
    # Photographs of a telephone are JPEGs, however it was held.
    assert written.info.features["image"].encoding == "jpeg"
    examples = written.examples()
    assert {path for path, (_, one) in examples.items() if one["image"] != (folder / path).read_bytes()} == {
        "cats/turned.jpg"
    }
    assert examples["cats/turned.jpg"][1]["image"].startswith(b"\xff\xd8\xff")


def test_much_larger_images_are_stored_upright_with_the_same_shorter_side(write_records_of, tmp_path):
    image = Image.fromarray(COLOR).resize((400, 240), Image.Resampling.NEAREST)
    lying = Image.Exif()
    lying[0x0112] = 6
    files = {
        "large.jpg": encoded(image, "JPEG"),
        "turned.jpg": encoded(image.transpose(Image.Transpose.ROTATE_90), "JPEG", exif=lying),
        "cmyk.jpg": encoded(image.convert("CMYK"), "JPEG"),
        "16-bits.png": encoded(np.asarray(image.convert("L")).astype(np.uint16) * 257, "PNG"),
        "tall.png": encoded(image.resize((173, 300)), "PNG"),
        "small.jpg": encoded(image.resize((300, 172)), "JPEG"),
    }
    folder = write_folder(tmp_path / "photos", cats=files, dogs=3)
    written = write_records_of(folder, image_size=100)
    examples = {path.partition("/")[2]: example["image"] for path, (_, example) in written.examples().items()}
    assert examples["small.jpg"] == files["small.jpg"]
    assert written.manifest["image"].items() >= {"store_side": 115, "store_quality": 92}.items()
    shape, job = (100, 100, 3), Job("", (), form=ImageForm.of_manifest(written.manifest))
    for name in files:
        # A prediction starts from the same bytes.
        content = (folder / "cats" / name).read_bytes()
        assert stored_content(content, shape, job)[0] == examples[name]
        stored = Image.open(io.BytesIO(examples[name]))
        assert min(stored.size) == (172 if name == "small.jpg" else 115), name
        assert stored.format == ("PNG" if name.endswith("png") else "JPEG")
        expected = Image.fromarray(COLOR).convert("L" if name == "16-bits.png" else "RGB")
        seen = stored.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
        assert_same_picture(np.asarray(seen), np.asarray(expected.convert("RGB")))


def test_a_folder_of_gray_pictures_has_one_channel(write_records_of, tmp_path):
    files = {f"{number}.png": encoded(np.roll(GRAY, number, axis=0), "PNG") for number in range(12)}
    bits = encoded((GRAY.astype(np.uint16) * 257), "PNG")
    written = write_records_of(write_folder(tmp_path / "scans", a=files, b={**files, "16.png": bits}), image_size=SIDE)
    assert written.info.features["image"].shape[2] == 1
    assert written.examples()["b/16.png"][1]["image"] == GRAY.tobytes()


BAD = {
    "empty": (b"", "empty"),
    "text": (b"not an image at all", "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image$"),
    "half a HEIC": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "damaged or cut off"),
    "JPEG 2000": (encoded(COLOR, "JPEG2000"), "a JPEG 2000 image, convert it to PNG"),
    "SVG": (b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "an SVG drawing"),
    "HTML": (b"\n<!DOCTYPE html>\n<html><title>404</title>", "an HTML page, the download probably failed"),
    "fractions": (encoded(np.ones((4, 4), np.float32), "TIFF"), "floating-point pixels are not supported"),
    "half a JPEG": (encoded(COLOR, "JPEG")[:400], "damaged or cut off"),
    "half a PNG": (encoded(COLOR, "PNG")[:70], "damaged or cut off"),
    "half a GIF": (encoded(COLOR, "GIF")[:40], "damaged or cut off"),
    "only the head": (encoded(COLOR, "JPEG")[:20], "damaged or cut off"),
    "2 GB": (written_png(30_000, 24_000, 8), "claims too many pixels: more than 100,000,000"),
    "more than there are": (written_png(2**31 - 1, 2**31 - 1, 8), "claims too many pixels"),
    "just too many": (written_png(MAX_PIXELS // 1000 + 1, 1000, 8), "claims too many pixels: more"),
}


@pytest.mark.parametrize("what", BAD)
def test_unusable_images_are_refused_with_a_reason(what, recwarn):
    content, reason = BAD[what]
    with warnings.catch_warnings(action="ignore"):
        with pytest.raises(UndecodableError, match=reason):
            inspect(content)
        with pytest.raises(UndecodableError, match=reason):
            encode_plain(content)
    assert not recwarn.list


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_a_heic_photograph_is_decoded_upright(write_records_of, tmp_path, mode):
    pillow_heif = pytest.importorskip("pillow_heif", reason="pillow-heif is not installed")
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    lying = Image.fromarray(COLOR).transpose(Image.Transpose.ROTATE_90).convert(mode)
    pillow_heif.from_pillow(lying).save(file, exif=exif.tobytes(), quality=100, chroma=444)
    files = {f"{number}.heic": file.getvalue() for number in range(3)}
    written = write_records_of(write_folder(tmp_path / "phone", cats=files, dogs=3), encoding="raw", image_size=SIDE)
    pixels = np.frombuffer(written.examples()["cats/0.heic"][1]["image"], np.uint8).reshape(SIDE, SIDE, -1)
    expected = Image.fromarray(COLOR).convert(mode).convert("RGB")
    assert_same_picture(np.broadcast_to(pixels, (SIDE, SIDE, 3)), np.asarray(expected))


def test_a_heic_photograph_without_its_decoder_is_refused_with_the_group_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(UndecodableError, match=r"a HEIC image: install its decoder with pip install '\.\[heic\]'"):
        inspect(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")


def test_a_16_bit_picture_with_a_transparent_level_is_scaled_and_white_where_it_shows_through():
    levels = np.array([[0, 10_900, 21_800, 32_700, 43_600, 65_535]], np.uint16)
    file = io.BytesIO()
    Image.fromarray(levels).save(file, "PNG", transparency=0)
    seen = np.asarray(Image.open(io.BytesIO(encode_plain(file.getvalue()))))
    assert seen.tolist() == [[255, 42, 84, 127, 169, 255]]


def test_an_orientation_written_as_a_long_number_counts():
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x04\0\0\0\x01\0\0\0\x06\0\0\0\0"
    file = io.BytesIO()
    Image.fromarray(COLOR).resize((40, 20)).save(file, "JPEG", exif=exif)
    assert (inspect(file.getvalue()).width, inspect(file.getvalue()).height) == (20, 40)


def test_an_orientation_after_a_damaged_entry_counts():
    make = b"\x01\x0f\0\x02\0\0\0\x20\0\0\x13\x88"
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x02" + make + b"\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    file = io.BytesIO()
    Image.fromarray(COLOR).resize((40, 20)).save(file, "JPEG", exif=exif)
    assert (inspect(file.getvalue()).width, inspect(file.getvalue()).height) == (20, 40)


def test_a_broken_exif_says_nothing():
    with warnings.catch_warnings(action="ignore"):
        assert inspect(ODD_FILES["broken-exif.jpg"][0]()).plain


def test_every_flipped_bit_of_an_image_is_refused_or_leaves_what_tensorflow_decodes():
    for form in ("PNG", "JPEG"):
        file = io.BytesIO()
        Image.new("RGB", (40, 40), (10, 20, 200)).save(file, form)
        content, decoded, refused = file.getvalue(), 0, 0
        for at in range(len(content)):
            damaged = bytearray(content)
            damaged[at] ^= 1
            try:
                seen = inspect(bytes(damaged))
            except UndecodableError:
                refused += 1
                continue
            plain = bytes(damaged) if seen.plain else encode_plain(bytes(damaged))
            tf.io.decode_image(plain, channels=3, expand_animations=False)
            decoded += 1
        assert decoded
        assert refused


@pytest.mark.parametrize("how", [{}, {"progressive": True}, {"restart_marker_blocks": 3}])
def test_damaged_jpegs_are_refused_without_their_pixels_as_with_them(how, rng):
    noise = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((160, 120))
    content, verdicts = encoded(noise, "JPEG", **how), []
    for _ in range(400):
        start, stop = np.sort(rng.integers(0, len(content), 2)).tolist()
        damage = rng.bytes(stop - start if rng.random() < 0.5 else 20)
        damaged = content[:start] + (damage + content[stop:] if rng.random() < 0.8 else b"")
        with warnings.catch_warnings(action="ignore"):
            verdicts.append([is_accepted(check, damaged) for check in (inspect, encode_plain)])
    assert [first for first, _ in verdicts] == [second for _, second in verdicts]
    assert 20 < sum(first for first, _ in verdicts) < 380


def is_accepted(check, content: bytes) -> bool:
    try:
        check(content)
    except UndecodableError:
        return False
    return True


def of_12_bits(number: int) -> bytes:
    """A gray picture of 16 bits whose values are those of 12."""
    return encoded(np.roll(GRAY, number, axis=0).astype(np.uint16) * 16, "PNG")


@pytest.mark.parametrize(
    ("value_range", "low", "high"), [("data", 20 * 16, 240 * 16), ("0, 4095", 0, 4095), ("full", 0, 65_535)]
)
def test_values_of_12_bits_in_16_are_scaled_on_request_with_a_warning(
    write_records_of, tmp_path, caplog, value_range, low, high
):
    files = {f"{number}.png": of_12_bits(number) for number in range(4)}
    folder = write_folder(tmp_path / "scans", a=files, b=files)
    written = write_records_of(folder, image_size=SIDE, source={"value_range": value_range})
    expected = (GRAY.astype(np.int64) * 16 - low) * 255 // (high - low)
    assert written.examples()["a/0.png"][1]["image"] == expected.astype(np.uint8).tobytes()
    assert written.info.value_range == (low, high)
    said = "8 images of 16 bits have values from 320 to 3,840, 5.4% of the range."
    assert (said in caplog.text) == (value_range == "full")


@pytest.mark.parametrize("value_range", ["5", "9, 3", "0, 70000", "auto"])
def test_a_value_range_that_is_none_is_refused(value_range):
    with pytest.raises(SettingsError, match=r"\[Source\] value_range: expected full, data, or two values"):
        SourceSettings(value_range=value_range)
