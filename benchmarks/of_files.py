"""Write records of a folder of images and print the seconds of each stage and the peak memory of this process.

python -m benchmarks.of_files FOLDER OUT ENCODING
"""

import json
import sys
from pathlib import Path

from benchmarks.comparison import seconds_of
from pipeline.artifacts.manifest import write_manifest
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources import Location, SourceInfo, resolve
from pipeline.sources.files import INDEX_NAME


def write(folder: Path, out: Path, settings: RecordsSettings, source: SourceInfo) -> Path:
    """What the Records stage does, of a source whose listing lies in ``out``; the folder of the records."""
    # Not above: the processes that look at the files import this module, and need no TensorFlow.
    from pipeline.shards.job import write_records

    records, notes = out / "records", out / "notes"
    for path in (records, notes):
        path.mkdir()
    location = Location(folder=str(folder), listing=str(out / INDEX_NAME))
    details = write_records(source, settings, records, notes, location=location)
    write_manifest(records, stage="Records", identity={"benchmark": True}, details=details)
    return records


def main(folder: Path, out: Path, encoding: str) -> None:
    """Print a JSON object."""
    # In neither job's time, as they are in every job's.
    import pipeline.shards.job  # noqa: F401
    from pipeline.training.timing import peak_host_bytes

    found: list[SourceInfo] = []
    looked = seconds_of(lambda: found.append(resolve(SourceSettings(dataset="folder", path=str(folder)), out)))
    seconds = seconds_of(lambda: write(folder, out, RecordsSettings(encoding=encoding), *found))
    print(json.dumps({"source_seconds": looked, "seconds": seconds, "peak_bytes": peak_host_bytes()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
