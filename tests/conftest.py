"""Small, real inputs: a placeholder of a few hundred images, its records, and a prepared TFDS folder.

Nothing here imports a heavy library before a fixture needs it. Test modules import theirs in ``setup_module``: so
collecting all tests takes seconds, and a run of a few tests pays for what they use alone.
"""

import gc
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import hypothesis
import numpy as np
import pytest
from file_records import write_records_of  # noqa: F401
from listeners import Webhook, listening_webhook
from luigi_process import FAST, Luigi
from report_runs import write_run
from required import pytest_make_collect_report, pytest_runtest_makereport  # noqa: F401

from pipeline.artifacts.manifest import write_manifest
from pipeline.records.features import image_spec
from pipeline.settings.data import RecordsSettings
from pipeline.sources import Location, SourceInfo, placeholder_images

pytest_plugins = ["pytester", "resource_report"]

CIFAR10_LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# A busy machine is no failure.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser) -> None:
    parser.addoption("--dates", type=int, default=30, help="dates of test_soak.py")
    parser.addoption("--kills", type=int, default=100, help="kills at random moments, in full, of test_kills.py")


_COUNTS = pytest.StashKey[Counter]()
_FROZEN = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave the libraries out of garbage collections once they are imported. Keras collects before each training."""
    if "keras" in sys.modules and not item.config.stash.get(_FROZEN, False):
        gc.collect()
        gc.freeze()
        item.config.stash[_FROZEN] = True


@pytest.fixture(scope="session")
def count(request) -> Counter:
    """Faults injected, by kind; printed when the tests are done."""
    return request.config.stash.setdefault(_COUNTS, Counter())


def pytest_sessionfinish(session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = dict(session.config.stash.get(_COUNTS, {}))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    """Add up what the worker processes of pytest-xdist counted."""
    counts = node.config.stash.setdefault(_COUNTS, Counter())
    counts.update(getattr(node, "workeroutput", {}).get("faults", {}))


def pytest_terminal_summary(terminalreporter, config) -> None:
    for kind, number in config.stash.get(_COUNTS, Counter()).items():
        terminalreporter.write_line(f"{number} {kind}")


@pytest.fixture(scope="session")
def small_source() -> SourceInfo:
    """The stand-in, cut short: sizes that no number of shards or blocks divides evenly."""
    return SourceInfo(
        dataset="synthetic",
        origin="synthetic",
        version="1",
        features=image_spec(placeholder_images.IMAGE_SHAPE),
        label_names=placeholder_images.LABEL_NAMES,
        num_examples={"train": 403, "test": 101},
    )


@pytest.fixture(scope="session")
def write_small_records(small_source, tmp_path_factory) -> Callable[..., Path]:
    """A function that runs the Beam job on ``small_source`` and returns the published folder."""
    from pipeline.shards.job import write_records

    def write(*, source: SourceInfo = small_source, block_examples: int = 60, data_dir: str = "", **settings) -> Path:
        folder = tmp_path_factory.mktemp("records") / "records"
        scratch_folder = tmp_path_factory.mktemp("notes")
        folder.mkdir()
        options = RecordsSettings(**{"train_shards": 3, "test_shards": 2, **settings})
        location = Location(tfds_data_dir=data_dir)
        details = write_records(
            source, options, folder, scratch_folder, location=location, block_examples=block_examples
        )
        write_manifest(folder, stage="Records", identity={"test": True}, details=details)
        return folder

    return write


@pytest.fixture(scope="session")
def small_records(write_small_records, built_once) -> Path:
    """Published records of ``small_source``: 3 + 2 shards."""

    def write(folder: Path) -> None:
        shutil.copytree(write_small_records(), folder / "records", copy_function=os.link)

    return built_once("records", write) / "records"


@pytest.fixture(scope="session")
def write_tiny_tfds() -> Callable[..., Path]:
    """A function that makes a data_dir in which TFDS finds its cifar10 prepared: 403 + 101 images of ours."""

    def write(data_dir: Path, *, first: int = 0) -> Path:
        import tensorflow as tf
        import tensorflow_datasets as tfds

        builder = tfds.builder("cifar10", data_dir=str(data_dir))
        features = builder.info.features
        features["label"].names = CIFAR10_LABELS
        folder = Path(builder.data_path)
        folder.mkdir(parents=True)
        infos = []
        for split, lengths in {"train": [203, 200], "test": [101]}.items():
            images, labels = placeholder_images.draw_block(split, first, first + sum(lengths))
            about = {"data_dir": folder, "dataset_name": "cifar10", "split": split, "filetype_suffix": "tfrecord"}
            template = tfds.core.ShardedFileTemplate(**about)
            start = 0
            for shard, length in enumerate(lengths):
                path = template.sharded_filepath(shard_index=shard, num_shards=len(lengths))
                with tf.io.TFRecordWriter(str(path)) as writer:
                    for index in range(start, start + length):
                        example = {"id": f"{split}_{index}", "image": images[index], "label": labels[index]}
                        writer.write(features.serialize_example(features.encode_example(example)))
                start += length
            infos.append(
                tfds.core.SplitInfo(name=split, shard_lengths=lengths, num_bytes=1, filename_template=template)
            )
        tfds.folder_dataset.write_metadata(
            data_dir=folder,
            features=features,
            split_infos=infos,
            version=str(builder.version),
            supervised_keys=("image", "label"),
        )
        return data_dir

    return write


@pytest.fixture(scope="session")
def tiny_tfds(write_tiny_tfds, built_once) -> Path:
    """A data_dir with a small cifar10 in it."""
    return built_once("tfds", write_tiny_tfds)


@pytest.fixture(scope="session")
def built_once(tmp_path_factory, request) -> Callable[[str, Callable[[Path], None]], Path]:
    """A function that builds a folder once for all workers of pytest-xdist and returns it; for reading only."""
    top = tmp_path_factory.getbasetemp()
    shared = top.parent if hasattr(request.config, "workerinput") else top

    def build(name: str, write: Callable[[Path], None]) -> Path:
        folder = shared / f"shared-{name}"
        with filelock.FileLock(f"{folder}.lock"):
            if not (done := folder.with_name(f"{folder.name}.done")).exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                write(folder)
                done.touch()
        return folder

    return build


@pytest.fixture(scope="session")
def first_run(built_once, tiny_tfds) -> Luigi:
    """A storage root on which the whole pipeline has run once; for reading and copying, not for changing."""

    def run(folder: Path) -> None:
        done = Luigi(folder, tiny_tfds)(*FAST)
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip().endswith("report/report.html")

    return Luigi(built_once("first_run", run), tiny_tfds)


@pytest.fixture(scope="session")
def real_cifar10() -> Path:
    """TFDS_DATA_DIR, where it holds the real CIFAR-10."""
    data_dir = Path(os.environ.get("TFDS_DATA_DIR", "")).expanduser()
    if not os.environ.get("TFDS_DATA_DIR") or not (data_dir / "cifar10").is_dir():
        pytest.skip("TFDS_DATA_DIR holds no prepared cifar10")
    return data_dir


@pytest.fixture
def make_run(tmp_path) -> Callable[..., Path]:
    """A function that writes the folder of a run, as `write_run` does, under a name of its own."""
    return lambda name="run", curves=None, **changes: write_run(tmp_path / name, curves, **changes)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """A webhook on this machine."""
    with listening_webhook() as webhook:
        yield webhook


@pytest.fixture
def disk(tmp_path) -> Iterator[Callable[[int], Path]]:
    """A function that mounts a tmpfs of so many MB and returns its folder."""
    mounted = []

    def mount(megabytes: int) -> Path:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"a tmpfs cannot be mounted here: {error}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
