"""Folders of text files with the layout of ``LabelFolders``."""

from pipeline.sources.image_folder import LabelFolders
from pipeline.sources.labeled_texts import LabeledTexts


class TextFolder(LabelFolders, LabeledTexts):
    """A folder of text files with a subfolder per label."""
