"""Sources of examples: TensorFlow Datasets, a folder or table of images, a text, and generated placeholders.

``source.py`` names the kinds and says what each is asked. Each kind is one class in a module of its own.
"""

from pipeline.sources.source import Location, SourceInfo, availability, resolve

__all__ = ["Location", "SourceInfo", "availability", "resolve"]
