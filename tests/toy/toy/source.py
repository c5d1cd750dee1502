"""A source: two digits, each drawn as 8×8 pixels, side by side. The label is their sum."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.records.features import IMAGE, LABEL, image_spec
from pipeline.sources.source import Kind, SourceInfo

NUM_EXAMPLES = {"train": 640, "test": 128}
# Three columns and five rows of bits for each digit.
_FONT = (0o75557, 0o22222, 0o71747, 0o71717, 0o55711, 0o74717, 0o74757, 0o71111, 0o75757, 0o75717)


class Digits(Kind):
    """Drawn when they are read, so nothing is downloaded."""

    reader = "toy.source:read_pairs"

    def check(self) -> None:
        """Nothing is needed."""

    def find(self, artifact: Path | None) -> SourceInfo:
        """The same on every machine."""
        return SourceInfo(
            dataset=self.name(),
            origin="digits",
            version="1",
            problem="digit_sum",
            features=image_spec((8, 16, 1)),
            label_names=tuple(map(str, range(19))),
            num_examples=NUM_EXAMPLES,
        )


def read_pairs(info, location, form, split: str, start: int, stop: int) -> Iterator[dict]:
    """A range of a split."""
    import numpy as np

    rng = np.random.default_rng(sorted(NUM_EXAMPLES).index(split))
    digits = rng.integers(0, 10, (NUM_EXAMPLES[split], 2))
    noise = rng.integers(0, 64, (NUM_EXAMPLES[split], 8, 16, 1), np.uint8)
    glyphs = np.zeros((10, 8, 8), np.uint8)
    for digit, bits in enumerate(_FONT):
        rows = np.array([[bits >> 3 * (4 - row) >> 2 - column & 1 for column in range(3)] for row in range(5)])
        glyphs[digit, 1:6, 2:5] = 191 * rows
    images = np.concatenate([glyphs[digits[:, 0]], glyphs[digits[:, 1]]], axis=2)[..., None] + noise
    yield {IMAGE: images[start:stop], LABEL: digits.sum(axis=1)[start:stop]}
