"""Photographs: the input stream of JPEG records (row 4)."""

import os
import tempfile
from pathlib import Path
from statistics import median

import tensorflow as tf

from benchmarks.baselines import photograph_streams
from benchmarks.baselines.torch_folder import TorchFolder
from benchmarks.comparison import Comparison, interleaved, speedup
from benchmarks.data import Bench
from benchmarks.of_files import write
from benchmarks.stream import rate
from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import SettingsError
from pipeline.problems.problem import open_split
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources import resolve
from pipeline.streams.tf_data import InputStream, Split

STORED_SIDE, SIZE, GLOBAL_BATCH_SIZE = 256, 224, 32
# Fields of tf.train.Example in the records.
_IMAGE, _LABEL = "image", "label"


def photographs() -> Path:
    """Folder of photographs that PHOTOGRAPHS names.

    Raises:
        SettingsError: The variable is not set.
    """
    if not (given := os.environ.get("PHOTOGRAPHS")):
        raise SettingsError("PHOTOGRAPHS: expected the path of a folder of photographs with a folder per label")
    return Path(given).expanduser().resolve()


def measure(bench: Bench) -> list[Comparison]:
    """Row 4."""
    with tempfile.TemporaryDirectory(dir=bench.folder) as folder:
        scratch = Path(folder)
        records = write_records(photographs(), scratch)
        split = open_split(records, read_manifest(records), "train")
        stored, contents = scratch / "stored", _write_stored(split, scratch / "stored")
        photograph_streams.write_array_record(contents, scratch / "stored.array_record")
        stream = InputStream(split, global_batch_size=GLOBAL_BATCH_SIZE, seed=0, in_memory=False)
        form = {"size": SIZE, "batch_size": GLOBAL_BATCH_SIZE}
        with TorchFolder(stored, **form) as torch:
            values = interleaved(
                {
                    "ours": lambda: rate(lambda: stream.training(0)),
                    "limit": lambda: rate(lambda: photograph_streams.decoding_alone(contents, **form)),
                    "keras": lambda: rate(lambda: photograph_streams.keras_dataset(stored, **form)),
                    "grain": lambda: rate(
                        lambda: photograph_streams.grain_dataset(scratch / "stored.array_record", **form)
                    ),
                    "torch": torch.rate,
                },
                bench.rounds,
                warm_up=True,
            )
    what = (
        f"input stream of {split.num_examples:,} photographs, stored at {STORED_SIDE} px, read at {SIZE} px, no cache"
    )
    return [
        speedup(
            *(f"4{letter}", against, values[key], goal),
            what=what,
            unit="images/s",
            ours=values["ours"],
            limit=f"decoding, cropping and resizing the same bytes alone: {median(values['limit']):,.0f} images/s",
        )
        for letter, key, against, goal in (
            ("a", "limit", "decoding, cropping and resizing alone", 0.95),
            ("b", "keras", "`keras.utils.image_dataset_from_directory` on the same bytes", 1.5),
            ("c", "torch", "PyTorch, `ImageFolder` and `DataLoader` with two workers on the same bytes", 1.5),
            ("d", "grain", "Grain with two workers on an ArrayRecord file of the same bytes", 1.5),
        )
    ]


def write_records(folder: Path, scratch: Path) -> Path:
    """Write JPEG records of the photographs of a folder below ``scratch``. Return the folder of the records."""
    source = resolve(SourceSettings(dataset="folder", path=str(folder)), scratch)
    settings = RecordsSettings(image_size=SIZE, encoding="jpeg", store_side=str(STORED_SIDE))
    return write(folder, scratch, settings, source)


def _write_stored(split: Split, folder: Path) -> list[bytes]:
    """Write the stored bytes of each example as a file in the folder of its label, and return them."""
    contents = []
    for number, record in enumerate(tf.data.TFRecordDataset(list(split.files)).as_numpy_iterator()):
        features = tf.train.Example.FromString(record).features.feature
        (content,), (label,) = features[_IMAGE].bytes_list.value, features[_LABEL].int64_list.value
        file = folder / str(label) / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        contents.append(content)
    return contents
