import dataclasses
import os
import shutil
import socket
import socketserver
import threading
import urllib.error

import numpy as np
import pytest

from pipeline import sources
from pipeline.artifacts import stamps
from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.errors import (
    DamagedArtifactError,
    DatasetUnavailableError,
    SettingsError,
    StorageError,
    UnsupportedDatasetError,
)
from pipeline.records.features import Feature, stored_form
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.sources import files
from pipeline.sources.source import kind_of


def setup_module() -> None:
    global Location, placeholder_images, read_batches, tfds
    import tensorflow_datasets as tfds

    from pipeline.sources import Location, placeholder_images
    from pipeline.sources.source import read_batches


@pytest.fixture
def no_network(monkeypatch):
    """Whatever the machine can reach, this test reaches nothing."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def settings(data_dir, **changes):
    return SourceSettings(**{"dataset": "cifar10", "origin": "tfds", "tfds_data_dir": str(data_dir), **changes})


def read(info, data_dir, split, start, stop):
    """Images and labels of a range, batch by batch."""
    form = stored_form(info.features, RecordsSettings())
    for columns in read_batches(info, Location(tfds_data_dir=str(data_dir)), form, split, start, stop):
        yield columns["image"], columns["label"]


def changes(info, data_dir, artifact):
    return list(kind_of(settings(data_dir)).changed(info.to_json(), artifact))


def test_a_prepared_copy_is_used_without_the_network(tiny_tfds, no_network, tmp_path):
    info = sources.resolve(settings(tiny_tfds), tmp_path)
    assert (info.dataset, info.origin, info.version) == ("cifar10", "tfds", "3.0.2")
    assert info.features["image"] == Feature((32, 32, 3), "uint8", "image")
    assert info.label_names[:2] == ("airplane", "automobile")


def test_other_bytes_under_the_same_name_version_and_counts_are_another_source(write_tiny_tfds, tiny_tfds, tmp_path):
    info = sources.resolve(settings(tiny_tfds), tmp_path)
    write_tiny_tfds(tmp_path, first=1_000)
    other = sources.resolve(settings(tmp_path), tmp_path)
    assert (other.version, other.num_examples) == (info.version, info.num_examples)
    assert other != info
    assert changes(info, tiny_tfds, tmp_path) == []
    assert changes(info, tmp_path, tmp_path) == [f"{tmp_path / 'cifar10' / '3.0.2'} has changed"]
    with pytest.raises(DamagedArtifactError, match="changed during the run"):
        list(read(info, tmp_path, "train", 0, 1))


def test_labels_rewritten_in_place_are_another_source(tiny_tfds, tmp_path):
    copy = shutil.copytree(tiny_tfds, tmp_path / "copy")
    info = sources.resolve(settings(copy), tmp_path)
    assert changes(info, copy, tmp_path) == []
    records = min((copy / "cifar10" / "3.0.2").glob("*train.tfrecord*"))
    before, content = records.stat(), bytearray(records.read_bytes())
    content[-1] ^= 1
    records.write_bytes(content)
    os.utime(records, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert changes(info, copy, tmp_path) == [f"{records.parent} has changed"]
    assert sources.resolve(settings(copy), tmp_path).digest != info.digest


def test_a_prepared_copy_is_read_once_as_long_as_it_is_left_alone(tiny_tfds, tmp_path, monkeypatch):
    info = sources.resolve(settings(tiny_tfds), tmp_path)
    assert changes(info, tiny_tfds, tmp_path) == []
    stamps._digest_once.cache_clear()
    monkeypatch.setattr(files, "file_digest", lambda path: pytest.fail(f"{path} is read"))
    assert changes(info, tiny_tfds, tmp_path) == []


def test_a_prepared_copy_is_not_read_again_after_the_artifact_was_published(tiny_tfds, tmp_path, monkeypatch):
    info = sources.resolve(settings(tiny_tfds), tmp_path)
    assert write_manifest(tmp_path, stage="Source", identity={}, details={})["files"] == []
    stamps._digest_once.cache_clear()
    monkeypatch.setattr(files, "file_digest", lambda path: pytest.fail(f"{path} is read"))
    assert changes(info, tiny_tfds, tmp_path) == []


def test_a_copied_dataset_is_the_same_source_and_a_removed_one_is_unchanged(tiny_tfds, tmp_path):
    info = sources.resolve(settings(tiny_tfds), tmp_path)
    copy = shutil.copytree(tiny_tfds, tmp_path / "copy")
    (copy / "cifar10" / "3.0.2" / ".DS_Store").write_text("")
    assert sources.resolve(settings(copy), tmp_path) == info
    assert changes(info, tmp_path / "nowhere", tmp_path) == []


@pytest.mark.parametrize(("start", "stop"), [(0, 403), (0, 1), (190, 230), (202, 204), (400, 403)])
def test_any_range_is_the_same_examples(tiny_tfds, start, stop, tmp_path):
    info = sources.resolve(settings(tiny_tfds), tmp_path)
    images, labels = map(np.concatenate, zip(*read(info, tiny_tfds, "train", start, stop), strict=True))
    expected_images, expected_labels = placeholder_images.draw_block("train", start, stop)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, expected_images)
    np.testing.assert_array_equal(labels, expected_labels)


def test_an_example_without_a_label_is_refused(tiny_tfds, tmp_path):
    info = dataclasses.replace(sources.resolve(settings(tiny_tfds), tmp_path), label_names=("airplane", "automobile"))
    with pytest.raises(UnsupportedDatasetError, match=r"expected labels from 0 to 1, got 0 to 9 in train"):
        list(read(info, tiny_tfds, "train", 0, 403))


def test_auto_uses_the_placeholder_with_a_warning(tmp_path, no_network, caplog):
    info = sources.resolve(settings(tmp_path, origin="auto"), tmp_path)
    assert (info.dataset, info.origin) == ("synthetic", "synthetic")
    assert info.num_examples == {"train": 50_000, "test": 10_000}
    assert "Using the placeholder dataset" in caplog.text
    assert "is unreachable" in caplog.text


@pytest.mark.parametrize("dataset", ["mnist", "tiny_shakespeare"])
def test_a_dataset_that_was_named_is_not_replaced(tmp_path, no_network, dataset):
    with pytest.raises(DatasetUnavailableError, match="is unreachable"):
        sources.resolve(settings(tmp_path, dataset=dataset, origin="auto"), tmp_path)
    with pytest.raises(DatasetUnavailableError, match="is unreachable"):
        sources.availability(settings(tmp_path, dataset=dataset, origin="auto"))
    assert sources.resolve(settings(tmp_path, dataset=dataset, origin="placeholder"), tmp_path).origin == "synthetic"


def test_an_unavailable_dataset_is_reported_before_the_placeholder_replaces_it(tmp_path, no_network):
    assert sources.availability(settings(tmp_path, origin="auto")).startswith(
        "unavailable, so a run uses the placeholder dataset"
    )


def test_tfds_alone_fails_where_the_dataset_cannot_be_had(tmp_path, no_network):
    with pytest.raises(DatasetUnavailableError, match=r"unreachable.*tfds_data_dir"):
        sources.resolve(settings(tmp_path), tmp_path)


def test_an_unknown_dataset_is_refused_even_under_auto(tmp_path, no_network):
    with pytest.raises(SettingsError, match=r"'cifar_10'.*Did you mean 'cifar10"):
        sources.resolve(settings(tmp_path, dataset="cifar_10", origin="auto"), tmp_path)


@pytest.mark.parametrize("dataset", ["imdb_reviews", "coco"])
def test_datasets_of_other_problems_are_refused(tmp_path, no_network, dataset):
    with pytest.raises(UnsupportedDatasetError, match=f"{dataset}: expected a uint8 Image"):
        sources.resolve(settings(tmp_path, dataset=dataset, origin="auto"), tmp_path)


def test_a_damaged_manual_download_is_never_taken_for_the_dataset(tmp_path, no_network):
    archive = tmp_path / "downloads" / "manual" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"half a download")
    with pytest.raises(Exception, match=r"cifar-10-binary|checksum") as refusal:
        sources.resolve(settings(tmp_path, origin="auto"), tmp_path)
    assert type(refusal.value).__name__ == "DamagedArtifactError"


class _Server(socketserver.ThreadingTCPServer):
    """Breaks off what it sends: in the middle of a file over HTTP, before a word over FTP."""

    allow_reuse_address = True
    daemon_threads = True

    class RequestHandlerClass(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            if self.server.speaks_http and self.rfile.readline():
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nhalf a file")

    def __init__(self, *, speaks_http: bool) -> None:
        super().__init__(("127.0.0.1", 0), self.RequestHandlerClass)
        self.speaks_http = speaks_http


@pytest.fixture
def broken_off_at(tmp_path, monkeypatch):
    """A function that gives a builder whose file lies on a server of this machine that answers so."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    servers = []

    def builder(how: str):
        if how in ("refused", "http status"):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = f"ftp://127.0.0.1:{free.getsockname()[1]}"
        else:
            servers.append(_Server(speaks_http=how == "http"))
            threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
            address = f"{how}://127.0.0.1:{servers[-1].server_address[1]}"

        class Faraway(tfds.core.GeneratorBasedBuilder, skip_registration=True):
            VERSION = tfds.core.Version("1.0.0")
            # Where TFDS looks for known digests of the files.
            pkg_dir_path = tmp_path

            def _info(self) -> tfds.core.DatasetInfo:
                image = tfds.features.Image(shape=(2, 2, 3))
                features = {"image": image, "label": tfds.features.ClassLabel(num_classes=2)}
                return tfds.core.DatasetInfo(
                    builder=self, features=tfds.features.FeaturesDict(features), supervised_keys=("image", "label")
                )

            def _split_generators(self, dl_manager):
                # As a builder that opens an address by itself.
                if how == "http status":
                    raise urllib.error.HTTPError(address, 404, "Not Found", {}, None)
                dl_manager.download(f"{address}/a.bin")

            def _generate_examples(self):
                yield from ()

        monkeypatch.setattr(tfds, "builder", lambda name, data_dir: Faraway(data_dir=data_dir))

    yield builder
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("how", ["http", "ftp", "refused", "http status"])
def test_a_download_that_breaks_off_is_the_networks_fault(broken_off_at, tmp_path, how):
    broken_off_at(how)
    for origin in ("tfds", "auto"):
        with pytest.raises(DatasetUnavailableError, match="faraway: the download failed"):
            sources.resolve(settings(tmp_path, dataset="faraway", origin=origin), tmp_path)


def test_a_data_dir_that_cannot_be_written_is_the_storages_fault_even_under_auto(broken_off_at, tmp_path):
    broken_off_at("http")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file.*tfds_data_dir to a writable folder"):
        sources.resolve(settings(tmp_path / "file" / "below", dataset="faraway", origin="auto"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist"])
def test_real_mnist_and_fashion_mnist_work_by_their_names_alone_and_are_verified(
    dataset, real_cifar10, write_small_records, tmp_path
):
    if not (real_cifar10 / dataset).is_dir():
        pytest.skip(f"TFDS_DATA_DIR holds no prepared {dataset}")
    info = sources.resolve(settings(real_cifar10, dataset=dataset), tmp_path)
    assert (info.features["image"].shape, info.num_examples) == ((28, 28, 1), {"train": 60_000, "test": 10_000})
    folder = write_small_records(source=info, data_dir=str(real_cifar10), block_examples=10_000)
    assert len(list(folder.glob(f"{dataset}-train.tfrecord-*"))) == 3
    assert read_manifest(folder)["dataset_verified"] is True
