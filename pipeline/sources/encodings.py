"""Encodings: what a file of text is in, where it is not UTF-8 (the sources' aid)."""

from pipeline.sources import words

_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}

# A damaged text may have some.
_FEW_ZEROS = 8


def other_encoding(content: bytes) -> str:
    """The likely encoding of a text that is not UTF-8, or holds zero bytes; "" of one that is."""
    if name := next((name for mark, name in _MARKS.items() if content.startswith(mark)), ""):
        return name
    # Of texts in European languages half the bytes of UTF-16 are zero.
    if content.count(0) > len(content) / 4:
        return "UTF-16"
    # Of other languages their spaces and line ends are, so that zeros stand at every second place alone.
    even, odd = content[::2].count(0), content[1::2].count(0)
    if even + odd > max(_FEW_ZEROS, len(content) / 100) and not (even and odd):
        return "UTF-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        return words.OTHER_ENCODING
    return ""
