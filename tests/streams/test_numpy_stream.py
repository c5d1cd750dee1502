import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from text_records import write_text_records

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import open_split
from pipeline.records.features import spec_from_json
from pipeline.records.rows import Rows
from pipeline.settings.training import TrainSettings
from pipeline.training.process_group import ProcessGroup


def setup_module() -> None:
    global Batches, ColumnStream, FixedLayout, InputStream, Split, epoch_order, _training_stream
    from pipeline.records.example import FixedLayout
    from pipeline.streams.numpy_stream import Batches, ColumnStream, epoch_order
    from pipeline.streams.tf_data import InputStream, Split
    from pipeline.training.setup import _training_stream


PROJECT = Path(__file__).resolve().parents[2]
HOW = {"global_batch_size": 32, "seed": 7}

JAX_ALONE = PROJECT / "tests" / "jax_alone.py"
# Of a model that fit has to build first: what it takes to build one must come again.
TRAINING = """
import json, os, sys
os.environ["KERAS_BACKEND"] = "jax"
from pathlib import Path
import jax, keras, numpy as np
from pipeline.streams.numpy_stream import ColumnStream
from pipeline.problems.problem import open_split

class Noting(keras.Sequential):
    def train_step(self, state, data):
        jax.debug.callback(lambda seen: seen_labels.append(np.array(seen).tolist()), data[1], ordered=True)
        return super().train_step(state, data)

folder = Path(sys.argv[1])
split = open_split(folder, json.loads((folder / "manifest.json").read_text()), "train")
stream = ColumnStream(split, global_batch_size=64)
model = Noting([keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(10)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
losses, in_order = [], []
for epoch in range(2):
    seen_labels = []
    losses += model.fit(stream.training(epoch), verbose=0, shuffle=False).history["loss"]
    in_order.append(seen_labels == [labels.tolist() for _, labels in stream.training(epoch)])
print(losses[1] < losses[0], in_order, keras.config.backend(), "tensorflow" in sys.modules)
"""


@pytest.fixture(scope="module", params=["images", "text"])
def records(request, tmp_path_factory):
    if request.param == "images":
        return request.getfixturevalue("small_records")
    return write_text_records(tmp_path_factory.mktemp("text"))


def streams(records, **how):
    split = open_split(records, read_manifest(records), "train")
    return InputStream(split, in_memory=True, **HOW, **how), ColumnStream(split, **HOW, **how)


def assert_same(theirs, ours):
    theirs = list(theirs.as_numpy_iterator())
    assert len(theirs) == len(ours)
    for expected, batch in zip(theirs, ours, strict=True):
        for left, right in zip(expected, batch, strict=True):
            np.testing.assert_array_equal(left, right)
            assert left.dtype == right.dtype


@pytest.mark.parametrize("share", [(0, 1), (1, 2)], ids=["whole", "half"])
def test_it_gives_the_batches_of_the_input_stream_from_memory(records, share):
    stream, columns = streams(records, process_share=share)
    assert columns.steps_per_epoch == stream.steps_per_epoch > 1
    for epoch in range(2):
        assert_same(stream.training(epoch), columns.training(epoch))


def test_evaluation_goes_through_all_examples_in_stored_order(records):
    stream, columns = streams(records)
    assert_same(stream.evaluation(), columns.evaluation())


def test_the_first_batches_are_those_of_the_whole(small_records):
    _, columns = streams(small_records)
    whole, few = columns.training(3), columns.training(3).take(2)
    assert len(few) == 2
    for (left, _), (right, _) in zip(whole, few, strict=False):
        np.testing.assert_array_equal(left, right)


def test_the_manifest_says_where_each_feature_lies(records):
    manifest = read_manifest(records)
    for name in manifest["splits"]:
        about = manifest["splits"][name]
        layout = FixedLayout(spec_from_json(manifest["feature_spec"]), len(manifest["label_names"]), about["key_bytes"])
        assert Rows.of_manifest(manifest, name) == layout.rows


@given(size=st.integers(0, 300), seed=st.integers(0, 2**63), epoch=st.integers(0, 2**31))
def test_an_epoch_has_each_place_once(size, seed, epoch):
    assert sorted(epoch_order(size, seed, epoch)) == list(range(size))


def test_an_epoch_is_the_same_whatever_the_version_of_numpy():
    # As drawn when this was written: what has been trained for some epochs is resumed in the same order.
    assert epoch_order(10, 3, 2).tolist() == [8, 2, 4, 1, 3, 6, 5, 0, 7, 9]


def test_an_order_favors_no_place():
    places = np.array([epoch_order(4, 0, epoch) for epoch in range(3_000)])
    counts = np.array([[np.sum(places[:, place] == value) for value in range(4)] for place in range(4)])
    # 750 expected, with a standard deviation of 24.
    assert abs(counts - 750).max() < 5 * 24


def test_a_file_that_was_cut_is_named(small_records, tmp_path):
    folder = shutil.copytree(small_records, tmp_path / "records")
    file = next(folder.glob("*train*"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(DamagedArtifactError, match=rf"{file.name}.*tensorcraft run"):
        ColumnStream(open_split(folder, read_manifest(folder), "train"), **HOW)


@pytest.mark.slow
def test_jax_trains_on_each_batch_once_and_in_order_where_tensorflow_is_not_installed(small_records):
    command = [sys.executable, JAX_ALONE, "-c", TRAINING, small_records]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "True [True, True] jax False\n", done.stderr


def test_a_batch_requested_again_is_built_again(small_records):
    _, columns = streams(small_records)
    epoch = columns.training(0)
    first, second, again = epoch[0], epoch[1], epoch[0]
    np.testing.assert_array_equal(first[0], again[0])
    assert not np.array_equal(first[0], second[0])


@pytest.mark.parametrize(
    ("backend", "settings", "taken"),
    [
        ("jax", {}, True),
        ("jax", {"augment": "flip"}, False),
        ("jax", {"cache": "none"}, False),
        ("tensorflow", {}, False),
    ],
    ids=str,
)
def test_jax_trains_on_them_where_nothing_asks_for_tensorflow(small_records, backend, settings, taken):
    asked = TrainSettings(**{"global_batch_size": 32, "augment": "", **settings})
    runtime = SimpleNamespace(backend=backend)
    placement = SimpleNamespace(runtime=runtime, num_replicas=1, effective_device="cpu")
    request = SimpleNamespace(records=small_records, settings=asked, group=ProcessGroup(), chosen={})
    stream = _training_stream(request, read_manifest(small_records), placement)
    assert isinstance(stream.training(0), Batches) is taken
