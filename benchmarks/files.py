"""Files: records of a folder of 100,000 small images, which are drawn first: time (12a) and memory (12b, 12c)."""

import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from benchmarks.comparison import Comparison, interleaved, ratios
from benchmarks.data import Bench

NUM_LABELS, IMAGES_OF_A_LABEL, SIDE = 10, 10_000, 32
# The obvious job takes minutes.
_MOST_ROUNDS = 2


def measure(bench: Bench) -> list[Comparison]:
    """Row 12."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
        small, large = Path(scratch) / "small", Path(scratch) / "large"
        _draw(small, IMAGES_OF_A_LABEL // 10)
        _draw(large, IMAGES_OF_A_LABEL)
        peaks, looked = [], []

        def ours() -> float:
            done = _written("benchmarks.of_files", large, Path(scratch), "raw")
            peaks.append(done["peak_bytes"])
            looked.append(done["source_seconds"])
            return done["seconds"]

        values = interleaved(
            {
                "ours": ours,
                "theirs": lambda: _written("benchmarks.baselines.per_element", large, Path(scratch))["seconds"],
            },
            min(bench.rounds, _MOST_ROUNDS),
        )
        once, ten_times = (
            _written("benchmarks.of_files", folder, Path(scratch), "jpeg")["peak_bytes"] for folder in (small, large)
        )
    num_images = NUM_LABELS * IMAGES_OF_A_LABEL
    what = f"Records of a folder of {num_images:,} JPEGs of {SIDE} px"
    return [
        Comparison(
            number="12a",
            what=what,
            against="a Beam job of one element an image",
            unit="s",
            ours=values["ours"],
            theirs=values["theirs"],
            figure="times faster",
            figures=ratios(values["theirs"], values["ours"]),
            goal=5,
            at_least=True,
            limit="not measured",
            note=f"Source, which looks at each file to its last pixel first, takes {median(looked):.1f} s",
        ),
        Comparison(
            number="12b",
            what=f"peak memory of {what}",
            against="a fixed figure",
            unit="MB",
            ours=[peak / 1e6 for peak in peaks],
            figure="MB",
            figures=[peak / 1e6 for peak in peaks],
            goal=1_500,
            at_least=False,
            limit="not measured",
        ),
        Comparison(
            number="12c",
            what=f"{what}, stored as JPEGs: peak memory",
            against=f"the same of {num_images // 10:,}",
            unit="MB",
            ours=[ten_times / 1e6],
            theirs=[once / 1e6],
            figure="times its memory",
            figures=[ten_times / once],
            goal=1.3,
            at_least=False,
            limit="1",
        ),
    ]


def _written(module: str, folder: Path, scratch: Path, *arguments: str) -> dict:
    out = scratch / "out"
    out.mkdir()
    try:
        command = [sys.executable, "-m", module, str(folder), str(out), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    finally:
        shutil.rmtree(out)
    return json.loads(done.stdout.splitlines()[-1])


def _draw(folder: Path, images_of_a_label: int) -> None:
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_draw_label, [folder] * NUM_LABELS, range(NUM_LABELS), [images_of_a_label] * NUM_LABELS))


def _draw_label(folder: Path, label: int, images_of_a_label: int) -> None:
    import numpy as np
    from PIL import Image

    random, target = np.random.default_rng(label), folder / f"label-{label}"
    target.mkdir(parents=True)
    for number in range(images_of_a_label):
        # Blocks of color: noise in each pixel would make files that are larger than photographs of the size.
        coarse = random.integers(0, 256, (SIDE // 4, SIDE // 4, 3), np.uint8)
        Image.fromarray(coarse.repeat(4, axis=0).repeat(4, axis=1)).save(target / f"{number}.jpg", quality=90)
