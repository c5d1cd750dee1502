import dataclasses

import numpy as np
import pytest

from pipeline import sources
from pipeline.config import SourceSettings
from pipeline.errors import DatasetUnavailableError, SettingsError, UnsupportedDatasetError
from pipeline.sources import blocks, synthetic


@pytest.fixture
def no_network(monkeypatch):
    """Whatever the machine can reach, this test reaches nothing."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


def settings(data_dir, **changes):
    return SourceSettings(**{"dataset": "cifar10", "origin": "tfds", "tfds_data_dir": str(data_dir), **changes})


def test_a_prepared_copy_is_used_without_the_network(tiny_tfds, no_network):
    info = sources.resolve(settings(tiny_tfds))
    assert (info.dataset, info.origin, info.version) == ("cifar10", "tfds", "3.0.2")
    assert info.image_shape == (32, 32, 3)
    assert info.label_names[:2] == ("airplane", "automobile")


@pytest.mark.parametrize(("start", "stop"), [(0, 403), (0, 1), (190, 230), (202, 204), (400, 403)])
def test_any_range_is_the_same_examples(tiny_tfds, start, stop):
    info = sources.resolve(settings(tiny_tfds))
    images, labels = map(
        np.concatenate, zip(*blocks.read_batches(info, str(tiny_tfds), "train", start, stop), strict=True)
    )
    expected_images, expected_labels = synthetic.draw_block("train", start, stop)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, expected_images)
    np.testing.assert_array_equal(labels, expected_labels)


def test_an_example_without_a_label_is_refused(tiny_tfds):
    info = dataclasses.replace(sources.resolve(settings(tiny_tfds)), label_names=("airplane", "automobile"))
    with pytest.raises(UnsupportedDatasetError, match=r"expected labels from 0 to 1, the train split holds 0 to 9"):
        list(blocks.read_batches(info, str(tiny_tfds), "train", 0, 403))


def test_auto_goes_on_with_the_stand_in_and_says_so(tmp_path, no_network, caplog):
    info = sources.resolve(settings(tmp_path, origin="auto"))
    assert (info.dataset, info.origin) == ("synthetic", "synthetic")
    assert info.num_examples == {"train": 50_000, "test": 10_000}
    assert "STAND-IN" in caplog.text
    assert "not reachable" in caplog.text


def test_tfds_alone_fails_where_the_dataset_cannot_be_had(tmp_path, no_network):
    with pytest.raises(DatasetUnavailableError, match=r"not reachable.*tfds_data_dir"):
        sources.resolve(settings(tmp_path))


def test_an_unknown_dataset_is_refused_even_under_auto(tmp_path, no_network):
    with pytest.raises(SettingsError, match=r"'cifar_10'.*Did you mean 'cifar10"):
        sources.resolve(settings(tmp_path, dataset="cifar_10", origin="auto"))


@pytest.mark.parametrize("dataset", ["tiny_shakespeare", "cats_vs_dogs", "coco"])
def test_what_is_not_fixed_size_image_classification_is_refused(tmp_path, no_network, dataset):
    with pytest.raises(UnsupportedDatasetError, match=f"{dataset} is not an image-classification dataset"):
        sources.resolve(settings(tmp_path, dataset=dataset, origin="auto"))


def test_a_damaged_manual_download_is_never_taken_for_the_dataset(tmp_path, no_network):
    archive = tmp_path / "downloads" / "manual" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"half a download")
    with pytest.raises(Exception, match=r"cifar-10-binary|checksum") as refusal:
        sources.resolve(settings(tmp_path, origin="auto"))
    assert type(refusal.value).__name__ == "DamagedArtefactError"


@pytest.mark.slow
def test_real_mnist_works_by_its_name_alone(real_cifar10, write_small_records):
    if not (real_cifar10 / "mnist").is_dir():
        pytest.skip("TFDS_DATA_DIR holds no prepared mnist")
    info = sources.resolve(settings(real_cifar10, dataset="mnist"))
    assert (info.image_shape, info.num_examples) == ((28, 28, 1), {"train": 60_000, "test": 10_000})
    folder = write_small_records(source=info, data_dir=str(real_cifar10), block_examples=10_000)
    assert len(list(folder.glob("mnist-train.tfrecord-*"))) == 3
