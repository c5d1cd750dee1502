"""Vocabularies: text to tokens and back. A token is one byte in the records (NumPy only).

A token is a character if the text has at most 256 different ones, in the order of their code points. Otherwise a token
is a byte of the text in UTF-8.
"""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

MAX_TOKENS = 256
# As manifests name the bytes: most are no character.
BYTES = tuple(f"0x{byte:02x}" for byte in range(MAX_TOKENS))


class UnknownCharacterError(ValueError):
    """A text contains characters that its vocabulary lacks."""


@dataclass(frozen=True)
class Vocabulary:
    """``names`` of its tokens in order: characters, or BYTES."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Vocabulary":
        """The vocabulary of texts."""
        characters = set().union(*map(set, texts))
        return cls(BYTES if len(characters) > MAX_TOKENS else tuple(sorted(characters)))

    @property
    def is_bytes(self) -> bool:
        """Whether a token is a byte, and a character one or more tokens."""
        return self.names == BYTES

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text: uint8 (tokens,).

        Raises:
            UnknownCharacterError: a character is not in the vocabulary.
        """
        if self.is_bytes:
            return np.frombuffer(text.encode(), np.uint8)
        points = np.frombuffer(text.encode("utf-32-le"), "<u4")
        places, is_known = self._table
        points = np.minimum(points, len(places) - 1)
        if not is_known[points].all():
            unknown = map(ascii, sorted(set(text) - set(self.names))[:5])
            raise UnknownCharacterError(f"characters that the vocabulary does not have: {', '.join(unknown)}")
        return places[points]

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        """The text of tokens. Bytes that are no character become U+FFFD."""
        return "".join(self.pieces(tokens))

    def pieces(self, tokens: Sequence[int] | np.ndarray) -> list[str]:
        """The text of each token. A character of several bytes is at its last byte, "" at the others."""
        if not self.is_bytes:
            return [self.names[token] for token in tokens]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(bytes([token])) for token in tokens]

    @cached_property
    def _table(self) -> tuple[np.ndarray, np.ndarray]:
        """By code point, up to one more than the greatest: the token uint8, and whether there is one."""
        points = [ord(name) for name in self.names]
        places, is_known = np.zeros(max(points) + 2, np.uint8), np.zeros(max(points) + 2, bool)
        places[points], is_known[points] = np.arange(len(points)), True
        return places, is_known
