"""Ways to damage a file of an artifact, chosen by a seeded generator."""

import itertools
import random
import struct
from collections.abc import Callable
from pathlib import Path

# TFRecord's framing: uint64 length, uint32 CRC of it, payload, uint32 CRC of that.
_HEADER_BYTES, _FOOTER_BYTES = 12, 4


def boundaries(content: bytes) -> list[int]:
    """Where each record of a TFRecord file begins, and where the last one ends."""
    places = [0]
    while places[-1] < len(content):
        (length,) = struct.unpack_from("<Q", content, places[-1])
        places.append(places[-1] + _HEADER_BYTES + length + _FOOTER_BYTES)
    return places


def flip(content: bytes, byte: int, bit: int) -> bytes:
    return content[:byte] + bytes([content[byte] ^ 1 << bit]) + content[byte + 1 :]


def mutate(path: Path, rng: random.Random) -> str:
    """Damage the file in place; says how."""
    content = path.read_bytes()
    ways: dict[str, Callable[[], bytes]] = {
        "cut to nothing": lambda: b"",
        "cut to one byte": lambda: content[:1],
        "cut by one byte": lambda: content[:-1],
        "one byte more": lambda: content + b"\0",
        "a flipped bit": lambda: flip(content, rng.randrange(len(content)), rng.randrange(8)),
    }
    if ".tfrecord-" in path.name:
        places = boundaries(content)
        start, end = rng.choice(list(itertools.pairwise(places)))
        parts = {
            "length": (start, start + 8),
            "length's CRC": (start + 8, start + _HEADER_BYTES),
            "payload": (start + _HEADER_BYTES, end - _FOOTER_BYTES),
            "payload's CRC": (end - _FOOTER_BYTES, end),
        }
        ways["cut at a record's boundary"] = lambda: content[:start]
        for name, part in parts.items():
            ways[f"a flipped bit in a {name}"] = lambda part=part: flip(content, rng.randrange(*part), rng.randrange(8))
    way = rng.choice(sorted(ways))
    path.write_bytes(ways[way]())
    return way
