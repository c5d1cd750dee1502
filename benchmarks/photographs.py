"""Photographs: the input stream of JPEG records (11); PHOTOGRAPHS names a folder of JPEGs, a folder a label."""

import os
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.baselines import photograph_streams
from benchmarks.baselines.torch_folder import TorchFolder
from benchmarks.comparison import Comparison, interleaved, ratios
from benchmarks.data import Bench
from benchmarks.of_files import write
from benchmarks.stream import rate
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError
from pipeline.problems.problem import open_split
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources import resolve
from pipeline.streams.tf_data import InputStream, Split

SIZE, GLOBAL_BATCH_SIZE = 192, 32


def measure(bench: Bench) -> list[Comparison]:
    """Row 11.

    Raises:
        SettingsError: no photographs are named.
    """
    if not (given := os.environ.get("PHOTOGRAPHS")):
        raise SettingsError("PHOTOGRAPHS: expected the path of a folder of photographs, a folder for each label")
    folder = Path(given).expanduser().resolve()
    with tempfile.TemporaryDirectory(dir=bench.folder) as scratch:
        split, contents = _records(folder, Path(scratch))
        (Path(scratch) / "splits").mkdir()
        (Path(scratch) / "splits" / "train").symlink_to(folder)
        stream = InputStream(split, global_batch_size=GLOBAL_BATCH_SIZE, seed=0, in_memory=False)
        how = {"size": SIZE, "batch_size": GLOBAL_BATCH_SIZE}
        with TorchFolder(folder, **how) as torch:
            values = interleaved(
                {
                    "ours": lambda: rate(lambda: stream.training(0)),
                    "limit": lambda: rate(lambda: photograph_streams.decoding_alone(contents, **how)),
                    "keras": lambda: rate(lambda: photograph_streams.keras_dataset(folder, **how)),
                    "tfds": lambda: rate(lambda: photograph_streams.tfds_dataset(Path(scratch) / "splits", **how)),
                    "torch": torch.rate,
                },
                bench.rounds,
                warm_up=True,
            )
    row = {
        "what": f"input stream of JPEG records, {SIZE} px, {split.num_examples:,} photographs, read and decoded anew",
        "unit": "images/s",
        "ours": values["ours"],
        "at_least": True,
        "limit": f"decoding, cropping and resizing alone: {median(values['limit']):,.0f} images/s",
    }
    return [
        Comparison(
            number=number,
            against=against,
            theirs=values[key],
            figure="times as fast",
            figures=ratios(values["ours"], values[key]),
            goal=goal,
            **row,
        )
        for number, key, against, goal in (
            ("11a", "limit", "decoding, cropping and resizing alone", 0.9),
            ("11b", "keras", "keras.utils.image_dataset_from_directory on the same files", 2),
            ("11c", "tfds", "TFDS ImageFolder on the same files, mapped, batched, prefetched", 2),
            ("11d", "torch", "PyTorch's ImageFolder and DataLoader on the same files, two workers", 1),
        )
    ]


def _records(folder: Path, scratch: Path) -> tuple[Split, list[bytes]]:
    """The train split of the photographs' records, and the bytes of as many files."""
    source = resolve(SourceSettings(dataset="folder", path=str(folder)), scratch)
    records = write(folder, scratch, RecordsSettings(image_size=SIZE, encoding="jpeg", store_side="original"), source)
    split = open_split(records, read_manifest(records), "train")
    files = sorted(folder.glob("*/*.jpg"))
    # A few of each label, as the records hold them: sizes differ between labels.
    step = len(files) / split.num_examples
    return split, [files[int(number * step)].read_bytes() for number in range(split.num_examples)]
