"""A second, independent reading of the two formats: TFRecord framing and protobuf's wire format, in pure Python.

Written from their specifications and sharing no code with the pipeline or TensorFlow, so that the tests do not check
a writer against its own reader.
"""

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), bit by bit from a table."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """TFRecord's mask of a CRC."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path: Path, *, check_crc: bool = True) -> Iterator[bytes]:
    """Payload of each record: uint64 length, uint32 masked CRC of it, payload, uint32 masked CRC of that."""
    content = path.read_bytes()
    place = 0
    while place < len(content):
        length, length_crc = struct.unpack_from("<QI", content, place)
        payload = content[place + 12 : place + 12 + length]
        (payload_crc,) = struct.unpack_from("<I", content, place + 12 + length)
        if check_crc:
            assert masked(crc32c(content[place : place + 8])) == length_crc
            assert masked(crc32c(payload)) == payload_crc
        yield payload
        place += 16 + length


def parse_example(serialized: bytes) -> dict[str, bytes | int]:
    """tf.train.Example with one value in each feature → name → that value."""
    ((_, features),) = _fields(serialized)
    return dict(_feature(entry) for _, entry in _fields(features))


def _feature(entry: bytes) -> tuple[str, bytes | int]:
    parts = dict(_fields(entry))
    ((kind, values),) = _fields(parts[2])
    ((_, value),) = _fields(values)
    if kind == 3:  # Int64List: packed varints
        value, _ = _varint(value, 0)
    return parts[1].decode(), value


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        assert tag & 7 == 2, "every field of an Example is length-delimited"
        length, place = _varint(message, place)
        yield tag >> 3, message[place : place + length]
        place += length


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


def _table_entry(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_table_entry(byte) for byte in range(256)]


def shard_bytes(folder: Path) -> dict[str, str]:
    """The sha256 of each shard, by name."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.tfrecord-*")}
