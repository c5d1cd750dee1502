"""Records of sources of single files, read back by the tests' own parser."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tfrecord import parse_example, read_records

from pipeline import sources
from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources import Location
from pipeline.sources.files import INDEX_NAME, path_key, read_index


class FolderRecords:
    """Records of a source of single files, and its listing."""

    def __init__(self, folder: Path, info: sources.SourceInfo, listing: str) -> None:
        self.folder, self.info, self.listing = folder, info, read_index(listing)
        self.manifest = read_manifest(folder)

    def examples(self) -> Mapping[str, tuple[str, Mapping]]:
        """Path → split and what the record of it holds."""
        paths = {path_key(path): path for split in self.listing.splits.values() for path in split.paths}
        found = {}
        for shard in sorted(self.folder.glob("*.tfrecord-*")):
            split = shard.name.partition(".")[0].rpartition("-")[2]
            for record in read_records(shard):
                example = parse_example(record)
                found[paths[example["key"].decode()]] = split, example
        return found


@pytest.fixture(scope="session")
def write_records_of(tmp_path_factory) -> Callable[..., FolderRecords]:
    """A function that lists the source of a path and writes its records."""
    from pipeline.shards.job import write_records

    def write(path: Path, *, source: Mapping | None = None, **settings) -> FolderRecords:
        top = tmp_path_factory.mktemp("files")
        for name in ("source", "notes", "records"):
            (top / name).mkdir()
        asked = SourceSettings(**{"dataset": "folder", "path": str(path), **(source or {})})
        info = sources.resolve(asked, top / "source")
        listing = str(top / "source" / INDEX_NAME)
        location = Location(folder=str(path if path.is_dir() else path.parent), listing=listing)
        options = RecordsSettings(**{"train_shards": 2, "test_shards": 1, **settings})
        details = write_records(info, options, top / "records", top / "notes", location=location)
        write_manifest(top / "records", stage="Records", identity={"test": True}, details=details)
        return FolderRecords(top / "records", info, listing)

    return write
