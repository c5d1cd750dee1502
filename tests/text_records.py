"""Records of a small text, for tests of all that follows."""

from collections.abc import Mapping
from pathlib import Path

from pipeline import sources
from pipeline.artifacts.manifest import write_manifest
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources import Location

LENGTH = 20
LINE = "The quick brown fox jumps over the lazy dog, and the dog does not mind.\n"


def write_text_records(top: Path, text: str = LINE * 60, *, source: Mapping | None = None, **settings) -> Path:
    """Write the records of a text below ``top`` and return their folder."""
    from pipeline.shards.job import write_records

    for name in ("source", "notes", "records"):
        (top / name).mkdir(parents=True)
    (top / "text.txt").write_text(text, encoding="utf-8")
    asked = SourceSettings(**{"dataset": "text", "path": str(top / "text.txt"), **(source or {})})
    info = sources.resolve(asked, top / "source")
    options = RecordsSettings(**{"train_shards": 2, "test_shards": 1, "sequence_length": LENGTH, **settings})
    location = Location(artifact=str(top / "source"))
    details = write_records(info, options, top / "records", top / "notes", location=location)
    write_manifest(top / "records", stage="Records", identity={"test": True}, details=details)
    return top / "records"
