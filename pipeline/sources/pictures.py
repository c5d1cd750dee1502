"""Pictures: single image files as people have them (the sources' aid).

Formats are told by content, not by name. What TensorFlow decodes as it is meant, JPEGs and PNGs of 8 bits in grey or
RGB that stand upright, is *plain* and stays as it is. Everything else is made plain by Pillow: orientation by EXIF,
palettes, CMYK, transparency, 16 bits a channel, BMP, GIF (its first frame) and WebP.
"""

import hashlib
import io
import warnings
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Of what an image claims to be before it is decoded: a header of a few bytes can claim any size. 100 million pixels are
# more than any camera of today takes, and 300 MB as RGB.
MAX_PIXELS = 100_000_000

FORMATS = {"JPEG": "jpeg", "PNG": "png", "BMP": "bmp", "GIF": "gif", "WEBP": "webp"}
_PLAIN_MODES = {"JPEG": ("L", "RGB"), "PNG": ("L", "RGB")}
_ORIENTATION = 0x0112
_JPEG_QUALITY = 95


@dataclass(frozen=True)
class Picture:
    """What a file holds: ``encoding`` is jpeg, png, bmp, gif or webp; ``grey`` is whether it has no colour."""

    digest: str
    encoding: str
    width: int
    height: int
    grey: bool
    plain: bool


class UndecodableError(ValueError):
    """A file is no image that can be used; says why in a few words."""


def inspect(content: bytes) -> Picture:
    """Look at a file's content, to its last pixel.

    Raises:
        UndecodableError: it is no such image, is cut off or damaged, or claims too many pixels.
    """
    image = _opened(content)
    width, height = image.size
    orientation = image.getexif().get(_ORIENTATION, 1) if image.format in ("JPEG", "PNG", "WEBP") else 1
    mode = image.mode
    try:
        # A JPEG is decoded at an eighth of its size: every byte is read, and most of the work left out.
        image.draft(mode, (max(1, width // 8), max(1, height // 8)))
        image.load()
    # Pillow raises many kinds for damaged files.
    except Exception as error:
        raise UndecodableError(f"damaged or cut off: {error}") from error
    plain = mode in _PLAIN_MODES.get(image.format, ()) and orientation == 1 and "transparency" not in image.info
    return Picture(
        digest=hashlib.sha256(content).hexdigest(),
        encoding=FORMATS[image.format],
        width=width,
        height=height,
        grey=mode in ("1", "L", "I;16", "I", "F", "LA"),
        plain=plain,
    )


def made_plain(content: bytes, encoding: str = "png") -> bytes:
    """The same picture upright, of 8 bits, in grey or RGB, as a PNG, or as a JPEG of high quality.

    Raises:
        UndecodableError: it cannot be decoded.
    """
    image = _opened(content)
    try:
        image.seek(0)
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):
            # 16 bits a channel; Pillow itself would cut off above 255.
            image = Image.fromarray((np.asarray(image).astype(np.int64) // 257).clip(0, 255).astype(np.uint8))
        grey = image.mode in ("1", "L", "LA", "F")
        if image.mode == "P" and "transparency" in image.info:
            image = image.convert("RGBA")
        if image.mode in ("RGBA", "LA", "PA"):
            # As it looks on paper: what is transparent shows white.
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
        image = image.convert("L" if grey else "RGB")
        plain = io.BytesIO()
        if encoding == "jpeg":
            image.save(plain, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
        else:
            image.save(plain, "PNG", compress_level=1)
    except UndecodableError:
        raise
    except Exception as error:
        raise UndecodableError(f"damaged or cut off: {error}") from error
    return plain.getvalue()


def _opened(content: bytes) -> Image.Image:
    if not content:
        raise UndecodableError("empty")
    try:
        with warnings.catch_warnings():
            # We have a limit of our own.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(io.BytesIO(content), formats=list(FORMATS))
    except Image.DecompressionBombError as error:
        raise UndecodableError(f"claims too many pixels: {error}") from error
    except UnidentifiedImageError as error:
        raise UndecodableError("not a JPEG, PNG, BMP, GIF or WebP image") from error
    except Exception as error:
        raise UndecodableError(f"damaged or cut off: {error}") from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise UndecodableError(f"claims {width} × {height} pixels, more than {MAX_PIXELS:,}")
    return image
