"""Sources of examples, which are TensorFlow Datasets, folders or tables of images, texts and generated placeholders.

``source.py`` contains the protocol and the registry. Each kind is a class in its own module.
"""

from pipeline.sources.source import Location, SourceInfo, availability, resolve

__all__ = ["Location", "SourceInfo", "availability", "resolve"]
