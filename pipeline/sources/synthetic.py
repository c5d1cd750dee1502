"""Stand-in source: ten drawn shapes as 32x32 RGB images, where the real CIFAR-10 is unavailable.

The data's way: **source** → records → shards → input stream → training → metrics → report. This file is one
kind of source; its blocks have the shapes and dtypes of CIFAR-10's, so what follows handles both alike.

Decisions:

- *An example is a function of (split, index).* Every random number is a hash (the finaliser of splitmix64:
  Steele, Lea and Flood 2014) of the split's seed, the index and a lane that names what the number is for.
  ``numpy.random`` may change its streams between versions and ties an example to those drawn before it.
- *The same bytes on every machine.* Pixels come of float32 ``+ - * /``, ``abs``, ``floor``, minimum, maximum,
  one array operation each, which IEEE 754 fixes to the last bit; it does not fix array sines, powers or sums.
- *The label is in the shape or its texture alone.* Place, size, tilt, colours, light, an occluding bar and
  pixel noise are drawn without regard to it, and all shapes cover the same area: colour and brightness tell
  nothing.
- *A shape is brighter than its back.* Of ten calibrations with either polarity, four left the CNN below at
  10 % for all five epochs, four at 42 to 53 % and two above 90 %: it sticks or it saturates. One polarity
  gives its first steps a signal, and leaves room for noise that keeps it from the top.
- *Noise and bar are skewed.* Most images are mild, so learning starts at once; a tail is nearly hopeless, so
  it does not end at 99 %.

Test accuracy, measured on 50,000 train and 10,000 test examples (chance: 10 %):

===================================================  ======  ========
classifier                                           epochs  accuracy
===================================================  ======  ========
ridge regression on mean colour, squares, products        -     9.9 %
nearest class mean on raw pixels                          -    17.7 %
linear softmax on raw pixels, Adam 1e-3                   5    23.0 %
ridge regression on 4x4x8 gradient histograms             -    50.1 %
baseline CNN, batch 128, float32                          5    82.1 %
baseline CNN, batch 128, mixed_bfloat16                   5    81.6 %
baseline CNN, batch 128, mixed_bfloat16                  15    85.7 %
baseline CNN, batch 512, float32                          5    72.7 %
===================================================  ======  ========

The baseline CNN: 2x2 convolutions of 32, 64 and 128 channels, each with relu and max-pooling, dropout 0.3,
dense 100 with relu, dropout 0.4, softmax; Adam, 20 % linear warm-up to 5e-3, linear decay to zero.
"""

import math
from collections.abc import Callable

import numpy as np

NUM_EXAMPLES = {"train": 50_000, "test": 10_000}
IMAGE_SHAPE = (32, 32, 3)

# Ranges of what is drawn, set by the accuracies above. Lengths and offsets from the middle in pixels;
# contrast, tint and noise in units of full scale; light as its change from middle to edge; tilt in turns.
_SIZE = (5.5, 12.0)
_CENTRE = (-4.0, 4.0)
_TILT = 0.25
_CONTRAST = (0.2, 0.6)
_TINT = (-0.2, 0.2)
_LIGHT = (0.0, 0.4)
_NOISE = (0.02, 0.6)
_BAR_HALF_WIDTH = (1.0, 5.0)
_BAR_OFFSET = (-8.0, 8.0)

_LANE_NAMES = (
    *("size", "column", "row", "tilt", "brightness", "contrast", "light angle", "light", "noise"),
    *("bar angle", "bar offset", "bar half-width", "bar brightness"),
    *(f"{layer} tint {channel}" for layer in ("back", "fore", "bar") for channel in range(3)),
)
_LANES = {name: lane for lane, name in enumerate(_LANE_NAMES)}
_FIRST_PIXEL_LANE = 64

_SPLIT_SEEDS = {"train": 0x243F6A8885A308D3, "test": 0x13198A2E03707344}
_BLOCK_SEED = 0xA4093822299F31D0
_GAMMA = 0x9E3779B97F4A7C15
_UINT64_MASK = 2**64 - 1

# Small enough for the planes of a chunk to stay in a core's cache.
_CHUNK_EXAMPLES = 250

_SIDE = IMAGE_SHAPE[0]
_COLUMNS = (np.arange(_SIDE, dtype=np.float32) - (_SIDE - 1) / 2).reshape(1, 1, _SIDE)
_ROWS = _COLUMNS.reshape(1, _SIDE, 1)

_NUM_DIRECTIONS = 256
# Rounded to six digits: the last bit of a sine may differ between C libraries, these digits do not.
_COSINES, _SINES = (
    np.array([round(wave(2 * math.pi * k / _NUM_DIRECTIONS), 6) for k in range(_NUM_DIRECTIONS)], np.float32)
    for wave in (math.cos, math.sin)
)


def draw_block(split: str, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws the examples ``start`` to ``stop - 1`` of a split.

    An example's bytes depend on the split and its index alone, never on the block it is drawn in. Indices may
    go beyond ``NUM_EXAMPLES``.

    Args:
        split: ``"train"`` or ``"test"``.
        start: Index of the first example, 0 or more.
        stop: Index after the last example, ``start`` or more.

    Returns:
        images: uint8, shape ``(stop - start, 32, 32, 3)``, RGB.
        labels: int64, shape ``(stop - start,)``, indices into ``LABEL_NAMES``.

    Raises:
        ValueError: The split is unknown or the range runs backwards or below zero.
    """
    if split not in _SPLIT_SEEDS:
        raise ValueError(f"split: expected one of {sorted(_SPLIT_SEEDS)}, got {split!r}")
    if not 0 <= start <= stop:
        raise ValueError(f"range: expected 0 <= start <= stop, got start={start!r}, stop={stop!r}")
    indices = np.arange(start, stop, dtype=np.uint64)
    keys = _mix(indices * _GAMMA + _SPLIT_SEEDS[split])
    labels = _labels(split, indices)
    images = np.empty((stop - start, *IMAGE_SHAPE), np.uint8)
    for first in range(0, len(keys), _CHUNK_EXAMPLES):
        chunk = slice(first, first + _CHUNK_EXAMPLES)
        _paint(keys[chunk], labels[chunk], out=images[chunk])
    return images, labels


def _mix(state: np.ndarray) -> np.ndarray:
    """splitmix64's finaliser over uint64 of any shape, in place: callers hand in a temporary."""
    state ^= state >> 30
    state *= 0xBF58476D1CE4E5B9
    state ^= state >> 27
    state *= 0x94D049BB133111EB
    state ^= state >> 31
    return state


def _labels(split: str, indices: np.ndarray) -> np.ndarray:
    """Labels such that every ten examples from a multiple of ten hold each label once, in a hashed order."""
    blocks, places = np.divmod(indices, 10)
    hashes = _mix(blocks * _GAMMA + (_SPLIT_SEEDS[split] ^ _BLOCK_SEED))
    # A step coprime to ten visits all ten labels.
    steps = np.array([1, 3, 7, 9], np.uint64)[(hashes >> 62).astype(np.intp)]
    return ((places * steps + (hashes & 0xFFFFFFFF)) % 10).astype(np.int64)


def _uniform(keys: np.ndarray, name: str, low: float, high: float) -> np.ndarray:
    """One uniform number in [low, high) for each example: float32, shape (n, 1, 1)."""
    bits = _mix(keys + (_LANES[name] * _GAMMA & _UINT64_MASK))
    # 24 bits are what a float32 holds exactly.
    unit = (bits >> 40).astype(np.float32) * 2.0**-24
    return (low + (high - low) * unit).reshape(-1, 1, 1)


def _skewed(keys: np.ndarray, name: str, low: float, high: float) -> np.ndarray:
    """As ``_uniform``, but crowded towards ``low``: most examples are mild and a few are hopeless."""
    unit = _uniform(keys, name, 0, 1)
    return low + (high - low) * (unit * unit)


def _direction(keys: np.ndarray, name: str, turns: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of an angle within ``turns`` centred on zero: float32, shape (n, 1, 1) each."""
    num_steps = int(turns * _NUM_DIRECTIONS)
    steps = _uniform(keys, name, 0, num_steps).astype(np.intp) - num_steps // 2
    return _COSINES[steps], _SINES[steps]


def _ramp(across: np.ndarray, down: np.ndarray, offset: np.ndarray | float) -> np.ndarray:
    """The planes across * column + down * row + offset: float32, shape (n, 32, 32)."""
    return across * _COLUMNS + (down * _ROWS + offset)


def _soften(distance: np.ndarray) -> np.ndarray:
    """Coverage in [0, 1] from the signed distance to an edge in pixels, in place; edges are a pixel soft."""
    distance += 0.5
    return _clip(distance, 1)


def _clip(plane: np.ndarray, high: float) -> np.ndarray:
    np.maximum(plane, 0, out=plane)
    return np.minimum(plane, high, out=plane)


def _paint(keys: np.ndarray, labels: np.ndarray, out: np.ndarray) -> None:
    """Paints back, shape, bar, light and noise, in that order, into ``out``."""
    shape, bar = _cover_shape(keys, labels), _cover_bar(keys)
    light, noise = _light(keys), _noise(keys)
    contrast = _uniform(keys, "contrast", *_CONTRAST)
    back = _uniform(keys, "brightness", 0, 1) * (1 - contrast)
    bar_brightness = _uniform(keys, "bar brightness", 0, 1)
    noise_scale = _skewed(keys, "noise", *_NOISE) * (255 * 2.0**-15)
    for channel in range(3):
        plane = shape * _colour(keys, f"fore tint {channel}", back + contrast)
        plane += (1 - shape) * _colour(keys, f"back tint {channel}", back)
        plane += bar * (_colour(keys, f"bar tint {channel}", bar_brightness) - plane)
        plane *= light
        plane += noise[..., channel] * noise_scale
        out[..., channel] = _clip(plane, 255)


def _colour(keys: np.ndarray, tint: str, brightness: np.ndarray) -> np.ndarray:
    return _clip(brightness + _uniform(keys, tint, *_TINT), 1) * 255


def _light(keys: np.ndarray) -> np.ndarray:
    cosine, sine = _direction(keys, "light angle")
    slope = _uniform(keys, "light", *_LIGHT) / (_SIDE / 2)
    return _ramp(cosine * slope, sine * slope, 1)


def _noise(keys: np.ndarray) -> np.ndarray:
    """int16, shape (n, 32, 32, 4), uniform: one hash a pixel is enough for its three channels."""
    lanes = np.arange(_FIRST_PIXEL_LANE, _FIRST_PIXEL_LANE + _SIDE * _SIDE, dtype=np.uint64)
    bits = _mix(keys[:, None] + lanes * _GAMMA)
    # The byte order is spelt out: a view reads the same channels on every machine.
    return bits.astype("<u8", copy=False).view("<i2").reshape(-1, _SIDE, _SIDE, 4)


def _cover_bar(keys: np.ndarray) -> np.ndarray:
    cosine, sine = _direction(keys, "bar angle")
    across = _ramp(cosine, sine, _uniform(keys, "bar offset", *_BAR_OFFSET))
    return _soften(_skewed(keys, "bar half-width", *_BAR_HALF_WIDTH) - np.abs(across))


def _cover_shape(keys: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Coverage by the label's shape, moved, tilted and scaled: float32, shape (n, 32, 32)."""
    size = _uniform(keys, "size", *_SIZE)
    column, row = (_uniform(keys, name, *_CENTRE) for name in ("column", "row"))
    cosine, sine = (wave / size for wave in _direction(keys, "tilt", _TILT))
    cover = np.empty((len(keys), _SIDE, _SIDE), np.float32)
    for label, field in enumerate(_FIELDS.values()):
        at = np.flatnonzero(labels == label)
        u = _ramp(cosine[at], sine[at], -(cosine[at] * column[at] + sine[at] * row[at]))
        v = _ramp(-sine[at], cosine[at], sine[at] * column[at] - cosine[at] * row[at])
        cover[at] = field(u, v) * size[at]
    return _soften(cover)


# The fields below are roughly the signed distance to the shape's edge, positive inside, in units of its size.
# Their constants give every shape an area of 2: a larger one would brighten its images and be known by that.


def _disk(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (0.637 - (u * u + v * v)) * 0.63


def _ring(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return (0.318 - np.abs(u * u + v * v - 0.618)) * 0.63


def _square(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 0.707 - np.maximum(np.abs(u), np.abs(v))


def _frame(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 0.189 - np.abs(np.maximum(np.abs(u), np.abs(v)) - 0.661)


def _triangle(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 0.62 - np.maximum(v, np.abs(u) * 0.866 - v * 0.5)


def _cross(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    across, down = np.abs(u), np.abs(v)
    return np.minimum(0.293 - np.minimum(across, down), 1 - np.maximum(across, down))


def _crescent(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    squared = u * u + v * v
    return np.minimum(1 - squared, squared - u * 1.2 - 0.11) * 0.5


def _hourglass(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    across = np.abs(u)
    return np.minimum((across - np.abs(v) + 0.14) * 0.7, 0.867 - across)


def _stripes(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.minimum(1.36 - (u * u + v * v), _wave(u) * 1.4) * 0.5


def _checks(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.minimum(1.33 - (u * u + v * v), _wave(u) * _wave(v) * 8) * 0.5


def _wave(u: np.ndarray) -> np.ndarray:
    """A triangle wave of period 0.8 between -0.25 and 0.25."""
    cycles = u * 1.25
    return np.abs(cycles - np.floor(cycles + 0.5)) - 0.25


_FIELDS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "disk": _disk,
    "ring": _ring,
    "square": _square,
    "frame": _frame,
    "triangle": _triangle,
    "cross": _cross,
    "crescent": _crescent,
    "hourglass": _hourglass,
    "stripes": _stripes,
    "checks": _checks,
}
LABEL_NAMES: tuple[str, ...] = tuple(_FIELDS)
