"""Placeholder text: sentences of a small grammar. Each choice is a keyed hash of its number, equal on all machines.

Words agree in number, and a sentence that opens a quotation closes it. The entropy of the choices bounds the loss.
"""

import hashlib
import itertools
from collections.abc import Iterator

NUM_CHARACTERS = {"train": 200_000, "test": 20_000}

_ADJECTIVES = ("old", "small", "quiet", "green", "bright", "tired", "clever", "heavy", "curious", "gentle")
_NOUNS = ("fox", "river", "captain", "lantern", "garden", "sparrow", "baker", "mountain", "letter", "kettle", "sailor")
_VERBS = ("see", "follow", "forget", "carry", "answer", "draw", "greet", "find", "paint", "remember")
_PLACES = ("by the sea", "in the morning", "under the bridge", "at noon", "before the storm", "without a word")


def draw_text(split: str) -> str:
    """The text of a split."""
    size, choices, found, length = NUM_CHARACTERS[split], _choices(split), [], 0
    while length < size:
        sentence = _sentence(choices)
        found.append(sentence)
        length += len(sentence)
    return "".join(found)[:size]


def _sentence(choices: Iterator[int]) -> str:
    many = next(choices) % 2
    verb = _of(_VERBS, choices) + ("" if many else "s")
    parts = [_nouns(choices, many), verb, _nouns(choices, next(choices) % 2)]
    if next(choices) % 3 == 0:
        parts.append(_of(_PLACES, choices))
    text = " ".join(parts)
    text = f"{text[0].upper()}{text[1:]}."
    quoted = f'"{text}"' if next(choices) % 4 == 0 else text
    return quoted + ("\n" if next(choices) % 5 == 0 else " ")


def _nouns(choices: Iterator[int], many: int) -> str:
    adjective = f"{_of(_ADJECTIVES, choices)} " if next(choices) % 2 else ""
    return f"{'the' if many else 'one'} {adjective}{_of(_NOUNS, choices)}{'s' if many else ''}"


def _of(words: tuple[str, ...], choices: Iterator[int]) -> str:
    # The first words more often than the last, as in any language.
    return words[next(choices) % (1 + next(choices) % len(words))]


def _choices(split: str) -> Iterator[int]:
    for number in itertools.count():
        yield from hashlib.blake2b(number.to_bytes(8, "little"), person=split.encode()).digest()
