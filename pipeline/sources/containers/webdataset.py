"""Tar files as WebDataset writes them. The files of an example have one name up to its first dot.

The ending ``cls`` contains the label, or ``json`` an object with the label. Nothing is extracted to the disk.
"""

import itertools
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.sources.containers import ContainerSource
from pipeline.sources.files import Example
from pipeline.sources.image_folder import ImageFolder

_MAX_LABEL_BYTES = 2**20


class WebDataset(ContainerSource):
    """An uncompressed tar file of images and labels, or a folder of them."""

    file_names = r".*\.tar"

    def rows(self, path: Path, file: str) -> tuple[Sequence[str], list[Example]]:
        examples = []
        with tarfile.open(path, "r:") as tar:
            members = (member for member in tar if member.isreg() and not member.issparse())
            for _, group in itertools.groupby(members, lambda member: re.match(r"(.*/)?[^.]*", member.name)[0]):
                parts = {member.name.rpartition("/")[2].partition(".")[2].lower(): member for member in group}
                images = [member for member in parts.values() if ImageFolder.has_name(member.name)]
                if images:
                    address = (file, images[0].offset_data, images[0].size)
                    examples.append(Example(images[0].name, self._label_in(tar, parts), address=address, split=None))
        return (), examples

    def _label_in(self, tar: tarfile.TarFile, parts: Mapping[str, tarfile.TarInfo]) -> int | str | None:
        ending = next((ending for ending in ("cls", "json") if ending in parts), "")
        if not ending:
            return None
        text = tar.extractfile(parts[ending]).read(_MAX_LABEL_BYTES).decode().strip()
        if ending == "json":
            return json.loads(text).get(self.settings.label_column)
        return int(text) if re.fullmatch(r"-?\d+", text) else text
