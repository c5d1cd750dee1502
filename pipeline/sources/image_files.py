"""Checks of image files, and conversion of files that TensorFlow does not decode correctly.

The format is detected from the content, not from the name. Upright JPEGs and PNGs of 8 bits in gray or RGB are called
*plain* and stay unchanged. Pillow converts all other files. EXIF orientation, palettes, CMYK, transparency and 16 bits
per channel are converted, and so are BMP, WebP, AVIF, HEIC, the first frame of a GIF and the first page of a TIFF.
"""

import contextlib
import hashlib
import io
import multiprocessing.connection
import os
import re
import signal
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from pipeline import machine, progress
from pipeline.errors import message
from pipeline.optional_packages import install_command
from pipeline.records.features import ImageForm
from pipeline.settings.data import FULL_RANGE
from pipeline.sources.files import Address, Examined, Example, Skipped, UndecodableError, reading_damaged

# Maximum number of pixels by the header, which can state any size. 100 million pixels are 300 MB as RGB.
MAX_PIXELS = 100_000_000

# From this number of files on, processes are faster than threads, because Pillow parses in Python (docs/LOG.md).
MANY_FILES = 10_000
_FILES_AT_ONCE = 64

# Formats by Pillow's names. MPO is a JPEG that is followed by other images, as phones write it. The first one counts.
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "AVIF")
_JPEGS = ("JPEG", "MPO")
_GRAY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B")
_JPEG_QUALITY = 95
# Images that are less than so many times larger than the stored ones keep their bytes, because another encoding costs
# details, and they are decoded in at most twice the time (docs/LOG.md).
_MIN_REDUCTION = 1.5
#: First bytes of the files of each encoding.
SIGNATURES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n", "gif": b"GIF8"}
_LOOKED_AT_BYTES = 2_048
_SCAN, _END = 0xDA, 0xD9
# In compressed pixels, 0xFF is followed by 0 or by the number of a restart marker.
_AFTER_SCAN = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")

# Brands in the first box of the file.
_HEIC = re.compile(rb"....ftyp(heic|heix|hevc|mif1|msf1)", re.DOTALL)

_ORIENTATION = 0x0112
# Operation that makes an image upright, by EXIF orientation.
_TRANSPOSITIONS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LYING = (5, 6, 7, 8)
# In its first chunk, after a signature of 8 bytes: length, name, width and height.
_PNG_DEPTH_AT = 24
_PNG_END = b"\0\0\0\0IEND\xaeB`\x82"


@dataclass(frozen=True, kw_only=True)
class Picture(Examined):
    """Properties of an image file, with the size of the upright image and the value range of a 16-bit image.

    ``encoding`` is the encoding in the records, "jpeg" for a JPEG and "png" for all others.
    """

    encoding: str
    width: int
    height: int
    gray: bool
    levels: tuple[int, int] | None = None


def examine(
    read: Callable[[str, Address], bytes], folder: Path, examples: Sequence[Example]
) -> tuple[dict[str, Picture], list[Skipped]]:
    """Check each image. Returns the images by path, and the unusable ones in the order of the examples."""
    pictures, skipped = {}, []
    with warnings.catch_warnings(action="ignore"), _workers(len(examples)) as pool:
        try:
            results = pool.map(partial(_examined, read, str(folder)), examples, chunksize=_FILES_AT_ONCE)
            for number, (example, result) in enumerate(zip(examples, results, strict=True), start=1):
                if isinstance(result, Picture):
                    pictures[example.path] = result
                else:
                    skipped.append(result)
                progress.report("Reading images", number, len(examples), unit="images")
        except BaseException:
            # An interrupt does not wait for the other files.
            pool.shutdown(cancel_futures=True)
            raise
    return pictures, skipped


def _workers(num_files: int) -> Executor:
    cores = machine.granted_cores()
    if num_files < MANY_FILES or cores == 1:
        return ThreadPoolExecutor(cores)
    # Not forked from this process, where other threads may have a lock.
    context = multiprocessing.get_context("forkserver")
    return ProcessPoolExecutor(cores, mp_context=context, initializer=_start_worker)


def _start_worker() -> None:
    warnings.simplefilter("ignore")
    # An interrupt at the terminal reaches all processes. The parent decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A worker waits for files, even of a parent that was killed.
    multiprocessing.connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


def _examined(read: Callable[[str, Address], bytes], folder: str, example: Example) -> Picture | Skipped:
    content = None
    try:
        content = read(folder, example.address or example.path)
        return inspect(content)
    except UndecodableError as error:
        digest = "" if content is None else hashlib.sha256(content).hexdigest()
        return Skipped(example.path, example.stamp, digest, error.reason, error.detail)


def inspect(content: bytes) -> Picture:
    """Decode a file, and return its properties. The compressed pixels of a complete JPEG are left out.

    UndecodableError: the file is no image, is truncated or damaged, or has too many pixels.
    """
    image = _opened(_without_pixels(content))
    (width, height), mode, kind = image.size, image.mode, image.format
    with reading_damaged():
        # A JPEG is decoded at an eighth of its size, which avoids most of the work.
        image.draft(mode, (max(1, width // 8), max(1, height // 8)))
        image.load()
    orientation, levels = _orientation_of(image), None
    if orientation in _LYING:
        width, height = height, width
    if mode.startswith("I"):
        values = np.asarray(image)
        levels = int(values.min()), int(values.max())
    is_plain = mode in ("L", "RGB") and orientation == 1 and "transparency" not in image.info
    return Picture(
        digest=hashlib.sha256(content).hexdigest(),
        encoding="jpeg" if kind in _JPEGS else "png",
        width=width,
        height=height,
        gray=mode in _GRAY_MODES,
        plain=is_plain and (kind in _JPEGS or (kind == "PNG" and _is_whole_png(content))),
        num_bytes=len(content),
        levels=levels,
    )


def _without_pixels(content: bytes) -> bytes:
    """Return a complete JPEG without its compressed pixels, and any other file unchanged.

    libjpeg rejects markers, tables and headers, but never compressed pixels, which take most of the time to decode.
    """
    kept, start = [content[:2]], 2
    while content.startswith(b"\xff\xd8") and content[start : start + 1] == b"\xff":
        kind, stop = content[start + 1], start + 2 + int.from_bytes(content[start + 2 : start + 4])
        if kind == _END:
            return b"".join([*kept, content[start : start + 2]])
        kept.append(content[start:stop])
        if kind == _SCAN:
            stop = after.start() if (after := _AFTER_SCAN.search(content, stop)) else len(content)
        start = stop
    return content


def _is_whole_png(content: bytes) -> bool:
    """Whether the checksums of a PNG are valid. TensorFlow requires it, Pillow does not."""
    # Pillow raises many kinds of errors, and does not look at the last chunk.
    with contextlib.suppress(Exception):
        _opened(content).verify()
        return content.endswith(_PNG_END)
    return False


def gray_pixels(content: bytes, side: int) -> np.ndarray:
    """Decode an image of the records to uint8 (height, width). A JPEG is reduced to no less than ``side`` pixels."""
    image = _opened(content)
    image.draft("L", (side, side))
    return np.asarray(image.convert("L"))


def as_png(pixels: np.ndarray) -> bytes:
    """Encode uint8 (height, width[, 1 or 3]) as a PNG without compression."""
    content = io.BytesIO()
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels)
    image.save(content, "PNG", compress_level=0)
    return content.getvalue()


def stored_bytes(content: bytes, form: ImageForm, *, is_plain: bool, limits: tuple[int, int] = FULL_RANGE) -> bytes:
    """The bytes of an image in the records. They are its own if it is plain and small and has the records' encoding.

    ``limits`` are the values of a 16-bit image that become black and white.
    """
    own_encoding = "jpeg" if content.startswith(SIGNATURES["jpeg"]) else "png"
    # Pixels are those of the file itself. A picture that was not plain loses nothing as a PNG.
    raw = own_encoding if is_plain else "png"
    encoding = {"raw": raw, "image": own_encoding}.get(form.encoding, form.encoding)
    is_small = not form.store_side or min(_opened(content).size) < _MIN_REDUCTION * form.store_side
    if is_plain and is_small and encoding == own_encoding:
        return content
    return encode_plain(content, encoding, limits, *(() if is_small else (form.store_side, form.store_quality)))


def encode_plain(
    content: bytes,
    encoding: str = "png",
    value_range: tuple[int, int] = FULL_RANGE,
    side: int = 0,
    quality: int = _JPEG_QUALITY,
) -> bytes:
    """Convert an image to an upright one of 8 bits in gray or RGB, as a PNG or a JPEG.

    ``side`` is the new shorter side of a larger image. 0 keeps the size. UndecodableError: the file cannot be decoded.
    """
    image = _opened(content)
    size = [max(1, round(length * side / min(image.size))) for length in image.size]
    with reading_damaged():
        if side:
            # libjpeg skips details. Twice the new size leaves enough of them.
            image.draft(None, [2 * length for length in size])
        image.load()
        if image.format == "PNG" and "transparency" in image.info:
            image.info["transparency"] = _of_8_bits(image.info["transparency"], image.mode, content[_PNG_DEPTH_AT])
        gray, transposition = image.mode in _GRAY_MODES, _TRANSPOSITIONS.get(_orientation_of(image))
        # Transparent pixels become white.
        if image.mode.startswith("I"):
            # 16 bits a channel; Pillow itself would cut off above 255.
            values, (low, high) = np.asarray(image).astype(np.int64), value_range
            is_clear = values == image.info.get("transparency", -1)
            scaled = (values.clip(low, high) - low) * 255 // (high - low)
            image = Image.fromarray(np.where(is_clear, 255, scaled).astype(np.uint8))
        elif "transparency" in image.info or image.mode in ("RGBA", "LA", "PA"):
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
        image = image.convert("L" if gray else "RGB")
        if side:
            image = image.resize(size, Image.Resampling.LANCZOS, reducing_gap=2)
        if transposition is not None:
            image = image.transpose(transposition)
        plain = io.BytesIO()
        # Each format ignores the options of the other.
        image.save(plain, encoding, quality=quality, subsampling=0, compress_level=1)
    return plain.getvalue()


def _of_8_bits(level: int | tuple[int, ...] | bytes, mode: str, depth: int) -> int | tuple[int, ...] | bytes:
    """Scale the transparent level of a PNG. Pillow scales the pixels, but not this level."""
    if mode == "L" and depth in (2, 4):
        return level * (255 // (2**depth - 1))
    if mode == "RGB" and depth == 16:
        return tuple(value >> 8 for value in level)
    return level


def _orientation_of(image: Image.Image) -> int:
    """EXIF orientation from 1 (upright) to 8. 1 if it is missing or unreadable.

    Pillow stops at the first damaged entry, which may come before the orientation.
    """
    exif = (image.info.get("exif") or b"").removeprefix(b"Exif\0\0")
    order = {b"II*\0": "little", b"MM\0*": "big"}.get(exif[:4])
    if order is None:
        return 1

    def number(position: int, size: int) -> int:
        return int.from_bytes(exif[position : position + size], order)

    # The first directory: a count of entries, each of 12 bytes with its tag, type, count and value.
    directory = number(4, 4)
    for entry in range(directory + 2, min(directory + 2 + 12 * number(directory, 2), len(exif) - 11), 12):
        # Its type should be 3, of two bytes; some write 4, of four.
        size = 4 if number(entry + 2, 2) == 4 else 2
        if number(entry, 2) == _ORIENTATION and (orientation := number(entry + 8, size)) in _TRANSPOSITIONS:
            return orientation
    return 1


def _opened(content: bytes) -> Image.Image:
    if not content:
        raise UndecodableError("empty")
    with reading_damaged():
        try:
            image = _identified(content)
        except Image.DecompressionBombError as error:
            raise UndecodableError("claims too many pixels", f"more than {MAX_PIXELS:,}") from error
        except UnidentifiedImageError as error:
            if content.startswith(tuple(SIGNATURES.values())) or _HEIC.match(content):
                raise UndecodableError("damaged or cut off") from error
            description = _describe_format(content[:_LOOKED_AT_BYTES])
            raise UndecodableError("not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image", description) from error
    if image.mode == "F":
        raise UndecodableError("floating-point pixels are not supported")
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise UndecodableError("claims too many pixels", f"more than {MAX_PIXELS:,}")
    return image


def _identified(content: bytes) -> Image.Image:
    """Open an image by its first bytes. Some AVIF files have a brand of HEIC, so Pillow comes first."""
    try:
        return Image.open(io.BytesIO(content), formats=_FORMATS)
    except UnidentifiedImageError:
        if not _HEIC.match(content):
            raise
    try:
        import pillow_heif
    except ImportError as error:
        raise UndecodableError(
            "a HEIC image", f"install its decoder with {install_command('heic')}, or convert it to JPEG"
        ) from error
    pillow_heif.register_heif_opener()
    return Image.open(io.BytesIO(content), formats=["HEIF"])


@message
def _describe_format(begin: bytes) -> str:
    """The format of another file by its first bytes, and the remedy. "" if unknown."""
    formats = {
        "a JPEG 2000 image, convert it to PNG": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
        "an SVG drawing, convert it to PNG": rb"(<\?xml[^>]*>\s*)?(<!--.*?-->\s*)*(<!DOCTYPE svg[^>]*>\s*)?<svg",
        "an HTML page, the download probably failed": rb"(<!--.*?-->\s*)*<(!doctype html|html|head|body)",
    }
    begin = begin.removeprefix(b"\xef\xbb\xbf").lstrip()
    matching = (name for name, pattern in formats.items() if re.match(pattern, begin, re.DOTALL | re.IGNORECASE))
    return next(matching, "")
