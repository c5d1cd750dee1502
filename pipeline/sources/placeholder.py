"""Placeholders: generated images or text, if the dataset is unavailable or a placeholder is requested."""

from pathlib import Path

from pipeline.errors import message
from pipeline.records.features import image_spec
from pipeline.sources.source import SYNTHETIC, Kind, SourceInfo

_ABOUT = {"dataset": SYNTHETIC, "origin": SYNTHETIC, "version": "1"}


class PlaceholderImages(Kind):
    """Generated images of ten shapes."""

    @message
    def availability(self) -> str:
        """Nothing is needed."""
        return "the stand-in, as asked for"

    def find(self, artifact: Path | None) -> SourceInfo:
        """The same on every machine."""
        from pipeline.sources.placeholder_images import IMAGE_SHAPE, LABEL_NAMES, NUM_EXAMPLES

        return SourceInfo(
            **_ABOUT, features=image_spec(IMAGE_SHAPE), label_names=LABEL_NAMES, num_examples=NUM_EXAMPLES
        )


class PlaceholderText(PlaceholderImages):
    """Generated sentences, read as any text."""

    def find(self, artifact: Path | None) -> SourceInfo:
        """The same on every machine."""
        from pipeline.sources.placeholder_text import NUM_CHARACTERS, draw_text
        from pipeline.sources.tokens import described, write_tokens

        facts, tokens = described({split: draw_text(split) for split in NUM_CHARACTERS}, test_share=0.0)
        if artifact:
            write_tokens(artifact, tokens)
        return SourceInfo(**_ABOUT, **facts)
