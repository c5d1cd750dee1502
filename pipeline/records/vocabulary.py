"""Vocabularies, which convert text to tokens and back.

If a text has at most 256 different characters, a token is a character. Tokens are then in the order of the code points.
Otherwise a token is a byte of the text in UTF-8. Records store a token in one byte.
"""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

MAX_TOKENS = 256
# Names of the bytes in manifests, because most bytes are no character.
BYTES = tuple(f"0x{byte:02x}" for byte in range(MAX_TOKENS))


class UnknownCharacterError(ValueError):
    """A text contains characters that are not in the vocabulary."""


@dataclass(frozen=True)
class Vocabulary:
    """The ``names`` of the tokens in order, either characters or BYTES."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Vocabulary":
        """The vocabulary of these texts."""
        characters = set().union(*map(set, texts))
        return cls(BYTES if len(characters) > MAX_TOKENS else tuple(sorted(characters)))

    @property
    def is_bytes(self) -> bool:
        """Whether tokens are bytes, so that a character has one or more tokens."""
        return self.names == BYTES

    def encode(self, text: str) -> np.ndarray:
        """Convert a text to tokens, uint8 (tokens,). UnknownCharacterError: a character is not in the vocabulary."""
        if self.is_bytes:
            return np.frombuffer(text.encode(), np.uint8)
        # In the order of the code points.
        known = np.frombuffer("".join(self.names).encode("utf-32-le"), "<u4")
        points = np.frombuffer(text.encode("utf-32-le"), "<u4")
        tokens = np.searchsorted(known, points).clip(max=len(known) - 1)
        if not np.array_equal(known[tokens], points):
            unknown = map(ascii, sorted(set(text) - set(self.names))[:5])
            raise UnknownCharacterError(f"these characters are not in the vocabulary: {', '.join(unknown)}")
        return tokens.astype(np.uint8)

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """Convert tokens to text. Bytes that form no character become U+FFFD."""
        return "".join(self.pieces(tokens))

    def pieces(self, tokens: Sequence[int] | np.ndarray) -> list[str]:
        """The text of each token. A character of several bytes is at its last byte. Its other bytes have ""."""
        if not self.is_bytes:
            return [self.names[token] for token in tokens]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(bytes([token])) for token in tokens]
