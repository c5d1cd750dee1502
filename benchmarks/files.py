"""Records of files: photographs and a folder of 100,000 small images, which are drawn first (rows 6 and 12)."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from benchmarks.baselines.photograph_streams import decode_files
from benchmarks.comparison import Comparison, interleaved, seconds_of, speedup
from benchmarks.data import Bench
from benchmarks.photographs import photographs

NUM_LABELS, IMAGES_OF_A_LABEL, SIDE = 10, 10_000, 32
_WHAT = f"Records of a folder of {NUM_LABELS * IMAGES_OF_A_LABEL:,} JPEG files of {SIDE} px"
# The job of one element per image takes minutes.
_MOST_ROUNDS = 2


def measure(bench: Bench) -> list[Comparison]:
    """Rows 6c to 6e, and 12b to 12d."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
        small, large = Path(scratch) / "small", Path(scratch) / "large"
        _draw(small, IMAGES_OF_A_LABEL // 10)
        _draw(large, IMAGES_OF_A_LABEL)
        return [
            *_photographs(bench, Path(scratch)),
            *_small_files(bench, Path(scratch), large),
            _growing(Path(scratch), small, large),
        ]


def _photographs(bench: Bench, scratch: Path) -> list[Comparison]:
    folder = photographs()
    command = ("benchmarks.of_files", folder, scratch, "auto")
    values = interleaved(
        {
            "ours": lambda: _total(_written(*command)),
            "one": lambda: _total(_written(*command, cores={0})),
            "decode": lambda: seconds_of(lambda: decode_files(folder)),
        },
        bench.rounds,
    )
    row = {
        "what": f"Source and Records of {sum(1 for _ in folder.glob('*/*.jpg')):,} photographs",
        "unit": "s",
        "ours": values["ours"],
        "limit": f"decoding each file once on both cores: {median(values['decode']):.1f} s",
    }
    return [
        speedup("6c", "decoding each file once", values["decode"], 0.85, **row),
        speedup("6d", "the same on one core", values["one"], 1.8, **row),
    ]


def _small_files(bench: Bench, scratch: Path, folder: Path) -> list[Comparison]:
    written: list[dict] = []

    def ours() -> float:
        written.append(_written("benchmarks.of_files", folder, scratch, "raw"))
        return written[-1]["seconds"]

    values = interleaved(
        {
            "ours": ours,
            "decode": lambda: seconds_of(lambda: decode_files(folder)),
            "theirs": lambda: _written("benchmarks.baselines.per_element", folder, scratch)["seconds"],
        },
        min(bench.rounds, _MOST_ROUNDS),
    )
    row = {
        "what": _WHAT,
        "unit": "s",
        "ours": values["ours"],
        "limit": f"decoding each file once on both cores: {median(values['decode']):.1f} s",
        "note": f"Source, which decodes each file once, takes {median(one['source_seconds'] for one in written):.1f} s",
    }
    return [
        speedup("6e", "decoding each file once", values["decode"], 0.85, **row),
        speedup("12b", "a Beam job of one element per image", values["theirs"], 5, **row),
        _memory("12c", _WHAT, [one["peak_bytes"] / 1e6 for one in written]),
    ]


def _growing(scratch: Path, small: Path, large: Path) -> Comparison:
    once, ten_times = (
        _written("benchmarks.of_files", folder, scratch, "jpeg")["peak_bytes"] / 1e6 for folder in (small, large)
    )
    return _memory("12d", f"{_WHAT}, stored as JPEG", [ten_times], once)


def _memory(number: str, what: str, megabytes: list[float], smaller: float = 0) -> Comparison:
    """Compare peak memory with a number, or with that of ``smaller`` data."""
    return Comparison(
        number=number,
        what=f"peak memory of {what}",
        against=f"Records of {NUM_LABELS * IMAGES_OF_A_LABEL // 10:,} files" if smaller else "–",
        unit="MB",
        ours=megabytes,
        theirs=[smaller] if smaller else [],
        figure="times its memory" if smaller else "MB",
        figures=[one / (smaller or 1) for one in megabytes],
        goal=1.3 if smaller else 1_500,
        at_least=False,
        limit="1" if smaller else "–",
    )


def _total(written: dict) -> float:
    return written["source_seconds"] + written["seconds"]


def _written(module: str, folder: Path, scratch: Path, *arguments: str, cores: set[int] | None = None) -> dict:
    """Run a module in a process of its own, on all cores or on ``cores``, and return what it prints."""
    out = scratch / "out"
    out.mkdir()
    try:
        command = [sys.executable, "-m", module, str(folder), str(out), *arguments]
        affinity = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores or affinity)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        finally:
            os.sched_setaffinity(0, affinity)
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
