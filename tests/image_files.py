"""Image files as people have them, each with the pixels that it should come to."""

import io
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

SIDE = 16
_ORIENTATION = 0x0112
# EXIF orientation → what a viewer does to show the picture upright, undone: how the camera stored it.
_STORED = {
    1: [],
    2: [Image.Transpose.FLIP_LEFT_RIGHT],
    3: [Image.Transpose.ROTATE_180],
    4: [Image.Transpose.FLIP_TOP_BOTTOM],
    5: [Image.Transpose.TRANSPOSE],
    6: [Image.Transpose.ROTATE_90],
    7: [Image.Transpose.TRANSVERSE],
    8: [Image.Transpose.ROTATE_270],
}


def quarters(*colors: tuple[int, ...] | int) -> np.ndarray:
    """A picture of four flat quarters, row by row: each mirror image and turn of it is another."""
    picture = np.empty((SIDE, SIDE, *np.shape(colors)[1:]), np.uint8)
    half = SIDE // 2
    picture[:half, :half], picture[:half, half:], picture[half:, :half], picture[half:, half:] = colors
    return picture


COLOR = quarters((200, 30, 30), (30, 200, 30), (30, 30, 200), (220, 220, 40))
GRAY = quarters(20, 90, 160, 240)
AS_RGB = np.repeat(GRAY[..., None], 3, axis=2)
# Half of it see-through, on white.
HALF_CLEAR = np.where(np.arange(SIDE)[:, None, None] < SIDE // 2, 255, COLOR).astype(np.uint8)
ALPHA = np.where(np.arange(SIDE)[:, None] < SIDE // 2, 0, 255).repeat(SIDE, axis=1).astype(np.uint8)


def encoded(image: Image.Image | np.ndarray, kind: str, **how) -> bytes:
    """A file of an image."""
    image = Image.fromarray(image) if isinstance(image, np.ndarray) else image
    file = io.BytesIO()
    image.save(file, kind, **{"quality": 95, "subsampling": 0} | how if kind == "JPEG" else how)
    return file.getvalue()


def turned(orientation: int, kind: str) -> bytes:
    """As a camera that was held so stores it."""
    image = Image.fromarray(COLOR)
    for how in _STORED[orientation]:
        image = image.transpose(how)
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    return encoded(image, kind, exif=exif)


def _rgba(image: np.ndarray) -> Image.Image:
    return Image.fromarray(np.dstack([image, ALPHA]))


def _palette(**how) -> bytes:
    image = Image.fromarray(COLOR).quantize(4)
    if how:
        # The color of the upper left quarter shows nothing.
        how = {"transparency": image.getpixel((0, 0))}
    return encoded(image, "PNG", **how)


def _first_of(kind: str, **how) -> bytes:
    others = [Image.fromarray(COLOR[::-1]), Image.fromarray(COLOR[:, ::-1])]
    return encoded(Image.fromarray(COLOR), kind, save_all=True, append_images=others, **how)


def written_png(width: int, height: int, bits: int, pixels: bytes = b"") -> bytes:
    """A PNG in color, of any size and depth that it claims."""
    return _png(width, height, bits, 2, pixels, b"")


def _png(width: int, height: int, bits: int, kind: int, pixels: bytes, clear: bytes) -> bytes:
    """A PNG chunk by chunk; ``kind`` is 0 for gray and 2 for color, ``clear`` the level that shows nothing."""
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0),
        **({b"tRNS": clear} if clear else {}),
        b"IDAT": zlib.compress(pixels),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )


def written_gray_png(bits: int, clear: int) -> bytes:
    """A gray PNG of 2 or 4 bits, in which one level shows nothing: each row counts through the levels."""
    levels = np.tile(np.arange(SIDE) % 2**bits, (SIDE, 1))
    per_byte = 8 // bits
    shifts = np.arange(per_byte)[::-1] * bits
    rows = (levels.reshape(SIDE, -1, per_byte) << shifts).sum(axis=2).astype(np.uint8)
    return _png(SIDE, SIDE, bits, 0, b"".join(b"\0" + row.tobytes() for row in rows), struct.pack(">H", clear))


def _clear_level(bits: int, clear: int) -> np.ndarray:
    levels = np.tile(np.arange(SIDE) % 2**bits, (SIDE, 1))
    gray = np.where(levels == clear, 255, levels * (255 // (2**bits - 1))).astype(np.uint8)
    return np.repeat(gray[..., None], 3, axis=2)


def _color_of_16_bits(clear: tuple[int, ...] = ()) -> bytes:
    values = COLOR.astype(">u2") * 257
    # Each row begins with its filter: none.
    pixels = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return _png(SIDE, SIDE, 16, 2, pixels, struct.pack(f">{len(clear)}H", *(value * 257 for value in clear)))


def _clear_corner(picture: np.ndarray) -> np.ndarray:
    picture = picture.copy()
    picture[: SIDE // 2, : SIDE // 2] = 255
    return picture


_16_BITS = GRAY.astype(np.uint16) * 257
_BITS = GRAY > 100

# Name → the file, and the pixels it comes to.
ODD_FILES: Mapping[str, tuple[Callable[[], bytes], np.ndarray]] = {
    **{f"turned-{n}.jpg": (lambda n=n: turned(n, "JPEG"), COLOR) for n in _STORED},
    "turned-6.png": (lambda: turned(6, "PNG"), COLOR),
    "turned-8.webp": (lambda: turned(8, "WEBP"), COLOR),
    "broken-exif.jpg": (lambda: encoded(COLOR, "JPEG", exif=b"Exif\0\0MM\0*\0\0\xff\xff no directory"), COLOR),
    "cmyk.jpg": (lambda: encoded(Image.fromarray(COLOR).convert("CMYK"), "JPEG"), COLOR),
    "gray.jpg": (lambda: encoded(GRAY, "JPEG"), AS_RGB),
    "two-pictures.jpg": (lambda: _first_of("MPO", quality=95, subsampling=0), COLOR),
    "progressive.jpg": (lambda: encoded(COLOR, "JPEG", progressive=True), COLOR),
    "rgb.png": (lambda: encoded(COLOR, "PNG"), COLOR),
    "palette.png": (_palette, COLOR),
    "palette-clear.png": (lambda: _palette(transparency=True), _clear_corner(COLOR)),
    "16-bits.png": (lambda: encoded(_16_BITS, "PNG"), AS_RGB),
    "16-bits-small-values.png": (lambda: encoded(_16_BITS // 8, "PNG"), AS_RGB // 8),
    "16-bits-color.png": (_color_of_16_bits, COLOR),
    "gray.png": (lambda: encoded(GRAY, "PNG"), AS_RGB),
    "gray-clear.png": (lambda: encoded(GRAY, "PNG", transparency=20), _clear_corner(AS_RGB)),
    "rgb-clear.png": (lambda: encoded(COLOR, "PNG", transparency=(200, 30, 30)), _clear_corner(COLOR)),
    "rgba.png": (lambda: encoded(_rgba(COLOR), "PNG"), HALF_CLEAR),
    "la.png": (
        lambda: encoded(Image.merge("LA", [Image.fromarray(GRAY), Image.fromarray(ALPHA)]), "PNG"),
        np.where(ALPHA[..., None] == 0, 255, AS_RGB),
    ),
    "1-bit.png": (
        lambda: encoded(Image.fromarray(_BITS), "PNG"),
        np.repeat(_BITS[..., None], 3, axis=2).astype(np.uint8) * 255,
    ),
    "rgb.bmp": (lambda: encoded(COLOR, "BMP"), COLOR),
    "gray.bmp": (lambda: encoded(GRAY, "BMP"), AS_RGB),
    "moving.gif": (lambda: _first_of("GIF", duration=100), COLOR),
    "gray.gif": (lambda: encoded(GRAY, "GIF"), AS_RGB),
    "rgb.webp": (lambda: encoded(COLOR, "WEBP", lossless=True), COLOR),
    "clear.webp": (lambda: encoded(_rgba(COLOR), "WEBP", lossless=True, exact=True), HALF_CLEAR),
    "rgb.tif": (lambda: encoded(COLOR, "TIFF"), COLOR),
    "16-bits.tif": (lambda: encoded(_16_BITS, "TIFF"), AS_RGB),
    "16-bits-big-endian.tif": (
        lambda: encoded(Image.frombytes("I;16B", (SIDE, SIDE), _16_BITS.astype(">u2").tobytes()), "TIFF"),
        AS_RGB,
    ),
    "pages.tiff": (lambda: _first_of("TIFF"), COLOR),
    "turned-6.tif": (lambda: turned(6, "TIFF"), COLOR),
    "rgb.avif": (lambda: encoded(COLOR, "AVIF", quality=100, subsampling="4:4:4"), COLOR),
    "clear-2-bits.png": (lambda: written_gray_png(2, 1), _clear_level(2, 1)),
    "clear-4-bits.png": (lambda: written_gray_png(4, 5), _clear_level(4, 5)),
    "16-bits-color-clear.png": (lambda: _color_of_16_bits(clear=(200, 30, 30)), _clear_corner(COLOR)),
    "moving.webp": (lambda: _first_of("WEBP", lossless=True), COLOR),
    "a-jpeg.png": (lambda: encoded(COLOR, "JPEG"), COLOR),
    "a-png-called.jpg": (lambda: encoded(COLOR, "PNG"), COLOR),
    "no-name-ending": (lambda: encoded(COLOR, "PNG"), COLOR),
}


def write_folder(folder: Path, **labels: Mapping[str, bytes] | int) -> Path:
    """A folder of images: label → name → content, or how many different ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for label, files in labels.items():
        (folder / label).mkdir(parents=True)
        if isinstance(files, int):
            files = {f"{number:03d}.png": plain_file(label, number) for number in range(files)}
        for name, content in files.items():
            (folder / label / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / label / name).write_bytes(content)
    return folder


def plain_file(label: str, number: int) -> bytes:
    """A PNG like no other."""
    seed = [number, *os.fsencode(label)]
    return encoded(np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), np.uint8), "PNG")
