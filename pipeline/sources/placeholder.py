"""Placeholder datasets, which are generated images or texts.

A text consists of sentences of a small grammar. A hash makes each choice, so that all machines generate the same text.
Words agree in number, and quotations are closed. The entropy of the choices is a lower bound of the loss.
"""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

from pipeline.records.features import image_spec
from pipeline.settings.data import TEXTS
from pipeline.sources.source import SYNTHETIC, Kind, SourceInfo
from pipeline.sources.text import written_tokens

_NUM_CHARACTERS = {"train": 200_000, "test": 20_000}

_ADJECTIVES = ("old", "small", "quiet", "green", "bright", "tired", "clever", "heavy", "curious", "gentle")
_NOUNS = ("fox", "river", "captain", "lantern", "garden", "sparrow", "baker", "mountain", "letter", "kettle", "sailor")
_VERBS = ("see", "follow", "forget", "carry", "answer", "draw", "greet", "find", "paint", "remember")
_SCENES = ("by the sea", "in the morning", "under the bridge", "at noon", "before the storm", "without a word")


class Placeholder(Kind):
    """Generated images of ten shapes, or generated sentences. They are the same on every machine."""

    reader = "pipeline.sources.placeholder_images:read_drawn"

    def name(self) -> str:
        return SYNTHETIC

    def check(self) -> None:
        """A placeholder is always available."""

    def find(self, artifact: Path) -> SourceInfo:
        if self.settings.dataset in TEXTS:
            texts = {split: _draw_text(split, size) for split, size in _NUM_CHARACTERS.items()}
            facts = written_tokens(texts, artifact, test_share=0.0)
        else:
            from pipeline.sources.placeholder_images import IMAGE_SHAPE, LABEL_NAMES, NUM_EXAMPLES

            facts = {"features": image_spec(IMAGE_SHAPE), "label_names": LABEL_NAMES, "num_examples": NUM_EXAMPLES}
        return SourceInfo(dataset=self.name(), origin=SYNTHETIC, version="1", **facts)


def _draw_text(split: str, size: int) -> str:
    choices, text = _choices(split), ""
    while len(text) < size:
        text += _sentence(choices)
    return text[:size]


def _sentence(choices: Iterator[int]) -> str:
    many = next(choices) % 2
    verb = _of(_VERBS, choices) + ("" if many else "s")
    parts = [_nouns(choices, many), verb, _nouns(choices, next(choices) % 2)]
    if next(choices) % 3 == 0:
        parts.append(_of(_SCENES, choices))
    text = " ".join(parts)
    text = f"{text[0].upper()}{text[1:]}."
    quoted = f'"{text}"' if next(choices) % 4 == 0 else text
    return quoted + ("\n" if next(choices) % 5 == 0 else " ")


def _nouns(choices: Iterator[int], many: int) -> str:
    adjective = f"{_of(_ADJECTIVES, choices)} " if next(choices) % 2 else ""
    return f"{'the' if many else 'one'} {adjective}{_of(_NOUNS, choices)}{'s' if many else ''}"


def _of(words: tuple[str, ...], choices: Iterator[int]) -> str:
    # The first words are more frequent than the last, as in any language.
    return words[next(choices) % (1 + next(choices) % len(words))]


def _choices(split: str) -> Iterator[int]:
    for number in itertools.count():
        yield from hashlib.blake2b(number.to_bytes(8, "little"), person=split.encode()).digest()
