"""Write records of the stand-in, so many times its size, and print the seconds and the peak memory of this process."""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.comparison import seconds_of
from benchmarks.data import Bench, write_to
from pipeline.config import SourceSettings
from pipeline.sources import resolve
from pipeline.training.breakdown import peak_host_bytes


def main(times: int, folder: Path) -> None:
    """Print a JSON object."""
    source = resolve(SourceSettings(origin="synthetic"))
    larger = replace(source, num_examples={split: times * number for split, number in source.num_examples.items()})
    bench = Bench(folder, 1, larger, "")
    seconds = seconds_of(lambda: write_to(bench, folder))
    # Not getrusage's: a process inherits that from the one that started it.
    print(json.dumps({"seconds": seconds, "peak_bytes": peak_host_bytes()}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=Path(sys.argv[2]).parent) as scratch:
        main(int(sys.argv[1]), Path(scratch) / "records")
