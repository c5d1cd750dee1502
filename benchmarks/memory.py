"""Memory: training on 100,000 photographs of 224 px in a control group with 4 GiB (row 7). It needs root.

The photographs are those of PHOTOGRAPHS, repeated by links. A small model shows the cost of the input stream.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import keras

from benchmarks import BASELINE
from benchmarks.comparison import Comparison, interleaved, ratios
from benchmarks.data import Bench
from benchmarks.photographs import SIZE, photographs, write_records
from pipeline.errors import SettingsError
from pipeline.settings.training import TrainSettings
from pipeline.training.launch import TrainRequest
from pipeline.training.train import train

COUNT, LIMIT_BYTES = 100_000, 4 * 2**30
_MAX_ROUNDS = 2
# Version 1 of the control groups has a folder per controller.
_GROUPS = {
    Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
    Path("/sys/fs/cgroup"): "memory.max",
}


def measure(bench: Bench) -> list[Comparison]:
    """Row 7."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
        records = _records(Path(scratch))
        try:
            with _control_group() as group:
                values = interleaved(
                    {"small": lambda: _trained(records, group), "large": lambda: _trained(records, None)},
                    min(bench.rounds, _MAX_ROUNDS),
                )
        except OSError as error:
            raise SettingsError(f"memory: expected the right to create a control group, got {error}") from error
    return [
        Comparison(
            number="7",
            what=f"an epoch of training on {COUNT:,} photographs at {SIZE} px with 4 GiB of memory",
            against="the same with all memory, not cached",
            unit="s",
            ours=values["small"],
            theirs=values["large"],
            figure="times its time",
            figures=ratios(values["small"], values["large"]),
            goal=1.02,
            at_least=False,
            limit="–",
        )
    ]


def small_model(image_shape: tuple[int, int, int], num_labels: int) -> keras.Model:
    """Build a model of one convolution with large strides."""
    return keras.Sequential(
        [
            keras.Input(image_shape, dtype="uint8"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(16, 16, strides=16, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(num_labels, activation="softmax", dtype="float32"),
        ]
    )


def main(records: str) -> None:
    """Train an epoch and print its seconds as JSON."""
    own = {"model": f"{__spec__.name}:small_model", "epochs": 1, "global_batch_size": 64, "cache": "none"}
    with tempfile.TemporaryDirectory(dir=records) as folder:
        run = Path(folder) / "run"
        run.mkdir()
        settings = TrainSettings(**BASELINE | own, device="cpu")
        checkpoints = Path(folder) / "checkpoints"
        request = TrainRequest(
            records=Path(records),
            settings=settings,
            requested_dataset="",
            fingerprint="0" * 64,
            checkpoints=checkpoints,
        )
        print(json.dumps(train(request, run).train_seconds))


def _records(scratch: Path) -> Path:
    # Links cannot lead to another file system.
    copied = shutil.copytree(photographs(), scratch / "copied")
    files, folder = sorted(copied.glob("*/*.jpg")), scratch / "photographs"
    for number in range(COUNT):
        file = files[number % len(files)]
        (folder / file.parent.name).mkdir(parents=True, exist_ok=True)
        os.link(file, folder / file.parent.name / f"{number}.jpg")
    return write_records(folder, scratch)


@contextmanager
def _control_group() -> Iterator[Path]:
    top, name = next((top, name) for top, name in _GROUPS.items() if top.is_dir())
    group = top / "tensorcraft-bench"
    group.mkdir(exist_ok=True)
    try:
        (group / name).write_text(str(LIMIT_BYTES))
        yield group
    finally:
        group.rmdir()


def _trained(records: Path, group: Path | None) -> float:
    def enter() -> None:
        if group:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, "-m", "benchmarks.memory", str(records)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, preexec_fn=enter)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main(sys.argv[1])
