"""Sources: what examples there are; the first step of the data's way (source → records → shards → …).

    source.py      SourceInfo, what a source holds; which source the settings come to
    tfds.py        TensorFlow Datasets
    synthetic.py   the generated stand-in;  synthetic_text.py: that of a text
    blocks.py      any range of a split, read and decoded: what the Beam job calls
    folder.py      a folder of images;  table.py: a table that lists them
    text.py        one long text;  text_blocks.py: the examples cut from it
    found.py       what files such a source has, and what has changed, by their names and stamps
    files.py       looks at each file once;  listing.py: what was found out
    pictures.py    one image file, whatever its format
    file_blocks.py any range of a listed split
    prepared.py    one prepared copy of a dataset told from another, without an import of TFDS
    words.py       what is said about them

A range, never a single image, is what travels through the Beam job. The stand-in is only taken where the real dataset
is unavailable, and every later stage knows: ``SourceInfo.origin`` is part of the identity of all that is made from it.
"""

from pipeline.sources.source import (
    Location,
    SourceInfo,
    availability,
    example_keys,
    example_names,
    resolve,
)

__all__ = ["Location", "SourceInfo", "availability", "example_keys", "example_names", "resolve"]
