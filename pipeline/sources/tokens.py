"""Tokens of a text: one byte per token in a file per split of the source's artifact."""

from collections.abc import Mapping
from pathlib import Path

from pipeline.records.features import text_spec
from pipeline.records.keys import SPLITS
from pipeline.records.vocabulary import Vocabulary


def written_tokens(texts: Mapping[str, str], folder: Path | None, *, test_share: float) -> dict:
    """Write the tokens of texts by split to ``folder``, if there is one; the fields of ``SourceInfo`` that follow."""
    vocabulary, num_tokens = Vocabulary.of(texts.values()), {}
    for split in [split for split in SPLITS if split in texts]:
        tokens = vocabulary.encode(texts[split])
        num_tokens[split] = len(tokens)
        if folder:
            tokens.tofile(tokens_path(folder, split))
    return {
        "features": text_spec(),
        "label_names": vocabulary.names,
        "num_examples": num_tokens,
        "test_share": 0.0 if "test" in texts else test_share,
        "bytes_per_example": 1,
    }


def tokens_path(folder: Path, split: str) -> Path:
    """The file with the tokens of a split."""
    return folder / f"{split}.tokens"
