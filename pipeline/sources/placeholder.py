"""The placeholder: generated images or text, if the dataset is unavailable or a placeholder is requested."""

from pathlib import Path

from pipeline.config.data import TEXTS
from pipeline.errors import message
from pipeline.records.features import image_spec
from pipeline.sources.source import SYNTHETIC, Kind, SourceInfo


class Placeholder(Kind):
    """Generated images of ten shapes, or sentences that are read as any text. The same on every machine."""

    @message
    def availability(self) -> str:
        """Nothing is needed."""
        return "the stand-in, as asked for"

    def find(self, artifact: Path | None) -> SourceInfo:
        """Write the tokens of a text, or describe the images."""
        if self.settings.dataset in TEXTS:
            from pipeline.sources.placeholder_text import NUM_CHARACTERS, draw_text
            from pipeline.sources.tokens import written_tokens

            facts = written_tokens({split: draw_text(split) for split in NUM_CHARACTERS}, artifact, test_share=0.0)
        else:
            from pipeline.sources.placeholder_images import IMAGE_SHAPE, LABEL_NAMES, NUM_EXAMPLES

            facts = {"features": image_spec(IMAGE_SHAPE), "label_names": LABEL_NAMES, "num_examples": NUM_EXAMPLES}
        return SourceInfo(dataset=SYNTHETIC, origin=SYNTHETIC, version="1", **facts)
