"""``python -m benchmarks.scale TIMES FOLDER [PART …]``: records of so many times the stand-in, and what reads them.

Seconds and peak memory of each, as JSON objects; each in a process of its own, started anew: a forked one inherits the
peak of its parent. What was written is removed.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks import BASELINE
from benchmarks.comparison import seconds_of
from benchmarks.data import Bench, write_to
from pipeline.runs.verify import verify_artifact
from pipeline.settings.data import SourceSettings
from pipeline.settings.training import TrainSettings
from pipeline.sources import resolve
from pipeline.streams.tf_data import InputStream
from pipeline.training.launch import TrainRequest
from pipeline.training.timing import peak_host_bytes
from pipeline.training.train import train

_GLOBAL_BATCH_SIZE = 1_024


def _records(bench: Bench) -> None:
    write_to(bench, bench.records_folder)


def _verify(bench: Bench) -> None:
    verify_artifact(bench.records_folder)


def _first_batch(bench: Bench) -> None:
    next(iter(_stream(bench).training(0)))


def _epoch(bench: Bench) -> None:
    for _ in _stream(bench).training(0):
        pass


def _train(bench: Bench) -> None:
    settings = TrainSettings(**{**BASELINE, "epochs": 1, "global_batch_size": _GLOBAL_BATCH_SIZE})
    run = bench.folder / "run"
    run.mkdir()
    request = TrainRequest(
        records=bench.records_folder,
        settings=settings,
        requested_dataset="",
        fingerprint="0" * 64,
        checkpoints=bench.folder / "checkpoints",
    )
    train(request, run)


def _stream(bench: Bench) -> InputStream:
    # From the files: where memory is not enough for the split.
    return InputStream(bench.split("train"), global_batch_size=_GLOBAL_BATCH_SIZE, seed=0, in_memory=False)


#: In the order in which they are measured.
PARTS: dict[str, Callable[[Bench], None]] = {
    "records": _records,
    "verify": _verify,
    "first batch": _first_batch,
    "epoch of the stream": _epoch,
    "train": _train,
}


def measure(times: int, scratch: Path, parts: tuple[str, ...] = tuple(PARTS)) -> dict[str, dict[str, float]]:
    """Seconds and peak bytes of each part, for records of ``times`` the stand-in; what is written is removed.

    All but the first read what that wrote.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        return {part: _in_a_process(part, times, folder) for part in parts}


def _in_a_process(part: str, times: int, folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale", str(times), folder, "--this", part]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def _this_part(part: str, times: int, folder: Path) -> dict[str, float]:
    source = resolve(SourceSettings(origin="placeholder"), folder)
    larger = replace(source, num_examples={split: times * number for split, number in source.num_examples.items()})
    bench = Bench(folder, 1, larger, "")
    seconds = seconds_of(lambda: PARTS[part](bench))
    # Not getrusage's: a process inherits that from the one that started it.
    return {"seconds": seconds, "peak_bytes": peak_host_bytes()}


if __name__ == "__main__":
    times, folder, *parts = sys.argv[1:]
    if parts[:1] == ["--this"]:
        print(json.dumps(_this_part(parts[1], int(times), Path(folder))))
    else:
        print(json.dumps(measure(int(times), Path(folder), tuple(parts) or tuple(PARTS)), indent=1))
