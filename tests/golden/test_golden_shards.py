"""Shard bytes and batch order of fixed data. A difference means that users must rebuild their records.

The values were taken on commit 7c0bf7d, those of images when the labels got the same shares in all splits. They must
not change while the code is redesigned.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from pipeline.problems.problem import open_split

DATA = Path(__file__).parent / "data"
SETTINGS = {
    "raw": {"source": {"dataset": "folder", "path": "images"}, "validation_share": 0.2},
    "encoded": {"source": {"dataset": "folder", "path": "photographs"}, "image_size": 96, "validation_share": 0.2},
    "text": {"source": {"dataset": "text", "path": "text.txt"}, "sequence_length": 20, "validation_share": 0.2},
}
ENGINES = {
    "one worker": {},
    "two threads": {"runner_options": "--direct_running_mode=multi_threading --direct_num_workers=2"},
    "two processes": {"runner_options": "--direct_running_mode=multi_processing --direct_num_workers=2"},
}
SHARDS_SHA256 = {
    "raw": "5af50ba23d81e1711199961dc8ba95c08f640cfdeafe9ff8ebaddd7313ca3831",
    "encoded": "eafa3b909304b5fbea5045075f31853406587c82eeddd734dd6aa3ec8c316bca",
    "text": "2d0f1d8ad7a2962c02d4926eac2d86529787672e410b31a33b9ed3b43d5b31c2",
}
# Kind of records, input stream, augmentation -> sha256 of the first three batches of epoch 1.
BATCHES_SHA256 = {
    ("raw", "memory", ""): "801efcb0e3014f5bf9a10755bccf21d7802acee197022b02e4c8d988e57e524e",
    ("raw", "disk", ""): "2a3474ccdb31b1c6698fbccb96b23959e1a2086cb69397758d6feb98cb7675e9",
    ("raw", "numpy", ""): "801efcb0e3014f5bf9a10755bccf21d7802acee197022b02e4c8d988e57e524e",
    ("raw", "memory", "flip, crop:2, cutout:4"): "156a547690047e6075959c7f1fae10eae2175c7e8f928384b5ce74cd0dd86532",
    ("text", "memory", ""): "88cb3d9507a2399729b6a738f1cc39680d6e81e56a36957889e6683666c9e76c",
    ("text", "disk", ""): "ca9fda546176954d438c34d5e1237fbd8139b54341b027cec68e22ea2698d538",
    ("text", "numpy", ""): "88cb3d9507a2399729b6a738f1cc39680d6e81e56a36957889e6683666c9e76c",
}
CIFAR10_SHARDS_SHA256 = "da47c7cd9762c95c406a9145665f1f3b6843fe751ed7e79bf2f2be2ff9858e3b"
CIFAR10_SHARD_SHA256 = {
    "cifar10-test.tfrecord-00000-of-00004": "20e85593dba500bd730201c41ced134d2daaa62815d16699d14a35c736d0394a",
    "cifar10-train.tfrecord-00015-of-00016": "e798708a05e2b1fab8127ba2e000c3d3b464e383813801ea86c60beb20babbbd",
}


def write_shards(folder: Path, source: dict, **settings) -> Path:
    """Write and publish the records of a source below ``folder``. Return their folder."""
    from pipeline import sources
    from pipeline.artifacts.manifest import write_manifest
    from pipeline.settings.data import RecordsSettings, SourceSettings
    from pipeline.shards.job import write_records
    from pipeline.sources import Location
    from pipeline.sources.files import INDEX_NAME

    for name in ("source", "notes", "records"):
        (folder / name).mkdir(parents=True)
    requested = SourceSettings(**source)
    info = sources.resolve(requested, folder / "source")
    listed = {"folder": requested.path, "listing": str(folder / "source" / INDEX_NAME)} if requested.of_files else {}
    location = Location(artifact=str(folder / "source"), tfds_data_dir=requested.tfds_data_dir, **listed)
    details = write_records(info, RecordsSettings(**settings), folder / "records", folder / "notes", location=location)
    write_manifest(folder / "records", stage="Records", identity={"test": True}, details=details)
    return folder / "records"


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Callable[[str, str], Path]:
    """A function that returns the folder of a kind's records, written once per kind and engine."""
    written: dict[tuple[str, str], Path] = {}

    def write(kind: str, engine: str = "one worker") -> Path:
        if (kind, engine) not in written:
            settings = {"train_shards": 2, "test_shards": 1, **SETTINGS[kind], **ENGINES[engine]}
            source = {**settings.pop("source")}
            source["path"] = str(DATA / source["path"])
            written[kind, engine] = write_shards(tmp_path_factory.mktemp(kind), source, **settings)
        return written[kind, engine]

    return write


def digests(folder: Path) -> dict[str, str]:
    """Name of each shard -> sha256 of its bytes."""
    shards = sorted(folder.glob("*.tfrecord-*"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards}


def digest(folder: Path) -> str:
    """The sha256 of all shards: of the lines ``<sha256>  <name>``, sorted by name."""
    lines = (f"{sha256}  {name}\n" for name, sha256 in digests(folder).items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def batches_digest(batches: Iterable) -> str:
    """The sha256 of the first three batches: bytes of the inputs and of the targets of each."""
    hashed = hashlib.sha256()
    for batch in itertools.islice(batches, 3):
        for part in batch:
            hashed.update(np.ascontiguousarray(part).tobytes())
    return hashed.hexdigest()


def training_batches(folder: Path, stream: str, augment: str) -> Iterable:
    """The batches of epoch 1 of the train split."""
    import keras

    from pipeline.artifacts.manifest import read_manifest
    from pipeline.augmentation import Augmentation
    from pipeline.streams.numpy_stream import ColumnStream
    from pipeline.streams.tf_data import InputStream

    # TensorFlow's shuffle buffer also depends on the global seed, which a training sets to that of its settings.
    keras.utils.set_random_seed(5)
    manifest = read_manifest(folder)
    settings = {"global_batch_size": 8, "seed": 5}
    split = open_split(folder, manifest, "train")
    if stream == "numpy":
        batches = ColumnStream(split, **settings).training(1)
        return (batches[number] for number in range(len(batches)))
    augmentation = Augmentation(augment, seed=5, image_shape=split.content_shape) if augment else None
    batches = InputStream(split, **settings, in_memory=stream == "memory", augmentation=augmentation).training(1)
    return batches.as_numpy_iterator()


@pytest.mark.parametrize("engine", ["one worker", "two threads"])
@pytest.mark.parametrize("kind", SETTINGS)
def test_shards_have_their_golden_bytes(kind, engine, shards):
    assert digest(shards(kind, engine)) == SHARDS_SHA256[kind]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["raw", "encoded"])
def test_shards_that_two_processes_write_have_their_golden_bytes(kind, shards):
    # Records of one length and of any length take different paths. A text's are of one length.
    assert digest(shards(kind, "two processes")) == SHARDS_SHA256[kind]


@pytest.mark.parametrize(("kind", "stream", "augment"), BATCHES_SHA256)
def test_an_epoch_has_its_golden_order(kind, stream, augment, shards):
    found = batches_digest(training_batches(shards(kind), stream, augment))
    assert found == BATCHES_SHA256[kind, stream, augment]


@pytest.mark.slow
def test_shards_of_cifar10_have_their_golden_bytes(real_cifar10, tmp_path):
    folder = write_shards(tmp_path, {"dataset": "cifar10", "origin": "tfds", "tfds_data_dir": str(real_cifar10)})
    assert digests(folder).items() >= CIFAR10_SHARD_SHA256.items()
    assert digest(folder) == CIFAR10_SHARDS_SHA256
