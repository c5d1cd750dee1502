"""Records of photographs at camera size: seconds of decoding alone, of Source and Records, and of a pass of the stream.

python -m benchmarks.camera PHOTOGRAPHS FOLDER first enlarges 500 photographs to 4,000 × 3,000 pixels, below FOLDER.
"""

import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import tensorflow as tf
from PIL import Image

from benchmarks.comparison import interleaved, ratios, seconds_of
from benchmarks.of_files import write
from pipeline import machine
from pipeline.artifacts.manifest import read_manifest
from pipeline.problems.problem import open_split
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources import resolve
from pipeline.streams.tf_data import InputStream

COUNT, SIZE, ROUNDS = 500, (4_000, 3_000), 3


def enlarge(source: Path, folder: Path) -> None:
    """Write the photographs with noise, as JPEGs of quality 90."""
    paths = [path for label in sorted(source.iterdir()) for path in sorted(label.glob("*.jpg"))[: COUNT // 5]]

    def one(path: Path) -> None:
        noise = np.random.default_rng(path.stat().st_size).integers(-6, 7, (*SIZE[::-1], 1), np.int16)
        pixels = np.asarray(Image.open(path).convert("RGB").resize(SIZE, Image.Resampling.BICUBIC)) + noise
        (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / path.parent.name / path.name, quality=90)

    with ThreadPoolExecutor(machine.granted_cores()) as pool:
        list(pool.map(one, paths))


def main(source: Path, top: Path) -> None:
    """Print the median seconds."""
    folder, records = top / "photographs", {}
    if not folder.exists():
        enlarge(source, folder)
    files = list(map(str, folder.glob("*/*.jpg")))

    def decode() -> None:
        images = tf.data.Dataset.from_tensor_slices(files).map(tf.io.read_file)
        # One pixel of each, so that no time goes into copies.
        for _ in images.map(lambda file: tf.io.decode_jpeg(file)[0, 0], num_parallel_calls=machine.granted_cores()):
            pass

    def store(side: str) -> None:
        if side in records:
            shutil.rmtree(records[side].parent)
        out = Path(tempfile.mkdtemp(dir=top))
        info = resolve(SourceSettings(dataset="folder", path=str(folder)), out)
        records[side] = write(folder, out, RecordsSettings(image_size=160, store_side=side), info)

    def stream(side: str) -> None:
        split = open_split(records[side], read_manifest(records[side]), "train")
        for _ in InputStream(split, global_batch_size=32, seed=0, in_memory=False).training(0):
            pass

    sides = ("original", "auto")
    actions = {"decode": decode}
    actions |= {
        f"{what.__name__} {side}": lambda what=what, side=side: what(side) for what in (store, stream) for side in sides
    }
    seconds = interleaved({name: lambda one=one: seconds_of(one) for name, one in actions.items()}, ROUNDS)
    for over, under in (("store auto", "decode"), ("stream original", "stream auto")):
        print(f"{over} / {under}: {median(ratios(seconds[over], seconds[under])):.2f}")
    for name, values in seconds.items():
        print(f"{name:16} {median(values):8.2f} s  ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
