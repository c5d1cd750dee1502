"""Evaluation: the figures by their definitions, the mistakes and their pixels by a pass over real records."""

import json
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.artifacts.manifest import read_manifest
from pipeline.errors import DamagedArtifactError
from pipeline.problems.problem import (
    EXAMPLES_NAME,
    PREDICTIONS_NAME,
    TEST_IMAGES_NAME,
    EvaluatedRun,
    open_split,
)
from pipeline.report.data.labels import ImageEvaluation, read_predictions


def setup_module() -> None:
    global \
        InputStream, \
        Predictions, \
        Crossentropy, \
        Split, \
        calibration, \
        classification, \
        evaluate, \
        evaluation, \
        metrics, \
        judge, \
        keras, \
        predict, \
        tf
    import keras
    import tensorflow as tf

    from pipeline.models.model import Crossentropy
    from pipeline.problems import classification
    from pipeline.problems.classification import Predictions, calibration, judge, metrics
    from pipeline.problems.image_classification import evaluation
    from pipeline.problems.image_classification.evaluation import evaluate, predict
    from pipeline.streams.tf_data import InputStream, Split


LABELS = 4
label = st.integers(0, LABELS - 1)
predictions = st.lists(st.tuples(label, label, st.floats(0, 1, width=32)), min_size=1, max_size=60)


def judged(rows):
    labels, predicted, confidence = (np.array(column) for column in zip(*rows, strict=True))
    return judge(labels, predicted, confidence, num_labels=LABELS)


@given(predictions)
def test_the_confusion_matrix_counts_every_example_by_true_and_predicted_label(rows):
    facts = judged(rows)
    for true in range(LABELS):
        for given_label in range(LABELS):
            expected = sum((one[0], one[1]) == (true, given_label) for one in rows)
            assert facts["confusion_matrix"][true][given_label] == expected
    assert facts["accuracy"] == pytest.approx(sum(one[0] == one[1] for one in rows) / len(rows))


@given(predictions)
def test_precision_recall_and_f1_are_as_defined(rows):
    for which, found in enumerate(judged(rows)["classes"]):
        given_it = [one for one in rows if one[1] == which]
        having_it = [one for one in rows if one[0] == which]
        right = sum(one[0] == one[1] == which for one in rows)
        assert found["examples"] == len(having_it)
        assert found["precision"] == (pytest.approx(right / len(given_it)) if given_it else None)
        assert found["recall"] == (pytest.approx(right / len(having_it)) if having_it else None)
        if found["precision"] and found["recall"]:
            mean = 2 * found["precision"] * found["recall"] / (found["precision"] + found["recall"])
            assert found["f1"] == pytest.approx(mean)
        else:
            assert not found["f1"]


@given(predictions)
def test_calibration_bins_hold_every_example_where_its_confidence_lies(rows):
    bins = judged(rows)["calibration"]
    assert len(bins) == classification.CALIBRATION_BINS
    assert sum(one["examples"] for one in bins) == len(rows)
    for one in bins:
        assert (one["confidence"] is None) == (one["examples"] == 0)
        if one["examples"]:
            assert one["low"] - 1e-6 <= one["confidence"] <= one["high"] + 1e-6
            assert 0 <= one["accuracy"] <= 1


@given(predictions)
def test_the_calibration_error_lies_between_none_and_whole(rows):
    assert 0 <= judged(rows)["expected_calibration_error"] <= 1


@pytest.mark.parametrize(
    ("right", "confidence", "error"),
    [
        ([True] * 4, [1.0] * 4, 0.0),
        ([False] * 4, [1.0] * 4, 1.0),
        ([True, False], [0.5, 0.5], 0.0),
        # Three quarters of the examples 0.1 off, one quarter 0.4 off.
        ([True, True, True, False], [0.9, 0.9, 0.9, 0.4], 0.75 * 0.1 + 0.25 * 0.4),
    ],
)
def test_the_calibration_error_of_a_few_cases_worked_by_hand(right, confidence, error):
    found = calibration(np.array(right), np.array(confidence))
    assert found["expected_calibration_error"] == pytest.approx(error)


@pytest.fixture(scope="module")
def network() -> "keras.Model":
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.Flatten(), keras.layers.Dense(10, activation="softmax")]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers])
    model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def stream(records: Path, *, batch=40, in_memory=True) -> "InputStream":
    split = open_split(records, read_manifest(records), "test")
    return InputStream(split, global_batch_size=batch, seed=0, in_memory=in_memory)


def looked_at(model, test, records, folder):
    return evaluated_of(predict(model, test), test, read_manifest(records), folder)


def evaluated_of(predictions, test, manifest, folder):
    """The facts and the tiles of the mistakes. The train split is not augmented."""
    facts, images = evaluate(predictions, EvaluatedRun(None, None, test, test, manifest, folder))
    return facts, images.get("mistakes", ())


@pytest.fixture(scope="module")
def evaluated(network, small_records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluated")
    facts, tiles = looked_at(network, stream(small_records), small_records, folder)
    return folder, facts, tiles


def test_the_accuracy_is_what_keras_measures(evaluated, network, small_records):
    _, facts, _ = evaluated
    measured = network.evaluate(stream(small_records).evaluation(), verbose=0, return_dict=True)
    assert facts["num_examples"] == 101
    assert facts["accuracy"] == pytest.approx(measured["accuracy"])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_accuracy_of_the_predictions_are_what_keras_measures(network, small_records, smoothing):
    model = keras.models.clone_model(network)
    model.set_weights(network.get_weights())
    model.compile(loss=Crossentropy(label_smoothing=smoothing), metrics=["accuracy"])
    measured = model.evaluate(stream(small_records).evaluation(), verbose=0, return_dict=True)
    found = metrics(model, predict(model, stream(small_records)))
    assert found == {name: pytest.approx(measured[name], rel=1e-5) for name in ("loss", "accuracy")}


def test_the_facts_are_json_that_holds_no_nan(evaluated):
    _, facts, _ = evaluated
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert sum(facts["label_counts"]["test"].values()) == 101


def test_mistakes_are_the_most_confident_ones_with_their_own_pixels(evaluated, network, small_records):
    _, facts, tiles = evaluated
    images, labels = (np.concatenate(part) for part in zip(*stream(small_records).evaluation(), strict=True))
    probabilities = network.predict(images, verbose=0)
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != labels)
    expected = sorted(wrong, key=lambda index: (-probabilities[index].max(), index))[: classification.MAX_MISTAKES]
    mistakes = facts["test_images"][: classification.MAX_MISTAKES]
    found = [one["index"] for one in mistakes]
    assert len(found) == classification.MAX_MISTAKES
    # Batches of another size round otherwise: of two as sure either may come first.
    assert len(set(found) & set(expected)) >= classification.MAX_MISTAKES - 1
    confidences = [one["confidence"] for one in mistakes]
    assert confidences == sorted(confidences, reverse=True)
    for one, tile in zip(mistakes, tiles, strict=True):
        assert one["label"] == labels[one["index"]] != one["predicted"]
        np.testing.assert_array_equal(tile, images[one["index"]])


def test_the_sheets_hold_the_tiles_row_by_row(evaluated):
    folder, facts, tiles = evaluated
    sheet = tf.io.decode_png((folder / TEST_IMAGES_NAME).read_bytes()).numpy()
    assert sheet.shape == (-(-len(facts["test_images"]) // 8) * 32, 8 * 32, 3)
    np.testing.assert_array_equal(sheet[32:64, 64:96], tiles[8 + 2])
    assert (folder / EXAMPLES_NAME).is_file()


def test_the_examples_are_random_test_images_of_each_label_with_their_names(evaluated, small_records, tmp_path):
    _, facts, _ = evaluated
    examples, labels = facts["examples"], np.concatenate([labels for _, labels in stream(small_records).evaluation()])
    counts = np.bincount([one["label"] for one in examples], minlength=10)
    np.testing.assert_array_equal(
        counts, np.minimum(np.bincount(labels, minlength=10), classification.EXAMPLES_PER_LABEL)
    )
    names = stored_keys(small_records)
    assert all((labels[one["index"]], names[one["index"]]) == (one["label"], one["name"]) for one in examples)
    of_first = [one["index"] for one in examples if one["label"] == 0]
    assert of_first != np.flatnonzero(labels == 0)[: len(of_first)].tolist()
    # Another model has the same examples.
    guesses = Predictions(labels, np.eye(10, dtype=np.float32)[labels])
    others = evaluated_of(guesses, stream(small_records), read_manifest(small_records), tmp_path)[0]["examples"]
    assert [one["name"] for one in others] == [one["name"] for one in examples]


def test_a_split_read_from_disk_gives_the_same_facts(evaluated, network, small_records, tmp_path):
    again, _ = looked_at(network, stream(small_records, in_memory=False), small_records, tmp_path)
    assert again == evaluated[1]


@given(st.lists(st.tuples(label, label, st.integers(0, 20)), max_size=60), st.integers(0, 2), st.integers(0, 3))
def test_pictured_are_confident_mistakes_frequent_confusions_and_uncertain_correct_ones(rows, most, uncertain):
    labels, predicted, confidence = np.array(rows, int).reshape(-1, 3).T
    limits = {"MAX_MISTAKES": most, "MAX_CONFUSIONS": 2, "MISTAKES_PER_CONFUSION": 2, "MAX_UNCERTAIN": uncertain}
    with mock.patch.multiple(classification, **limits):
        found = classification.shown_examples(labels, predicted, confidence)
    assert len(found) == len(set(found))
    wrong = sorted(np.flatnonzero(labels != predicted), key=lambda index: -confidence[index])
    assert found[: len(wrong[:most])] == wrong[:most]
    right = [index for index in found if labels[index] == predicted[index]]
    assert sorted(confidence[right]) == sorted(confidence[labels == predicted])[:uncertain]
    counts = Counter((labels[index], predicted[index]) for index in wrong)
    frequent = sorted(counts, key=lambda pair: (-counts[pair], pair))[:2]
    for pair in frequent:
        members = [index for index in wrong if (labels[index], predicted[index]) == pair]
        assert set(members[:2]) <= set(found)
    assert len(found) <= most + 4 + uncertain


def test_a_network_without_mistakes_has_only_its_least_confident_images(small_records, tmp_path, monkeypatch):
    test = stream(small_records)
    labels = np.concatenate([labels for _, labels in test.evaluation()])
    perfect = Predictions(labels, np.eye(10, dtype=np.float32)[labels])
    facts, tiles = evaluated_of(perfect, test, read_manifest(small_records), tmp_path)
    assert (facts["accuracy"], len(tiles)) == (1.0, 0)
    assert [one["label"] == one["predicted"] for one in facts["test_images"]] == [True] * classification.MAX_UNCERTAIN
    monkeypatch.setattr(classification, "MAX_UNCERTAIN", 0)
    (tmp_path / TEST_IMAGES_NAME).unlink()
    facts, _ = evaluated_of(perfect, test, read_manifest(small_records), tmp_path)
    assert facts["test_images"] == []
    assert not (tmp_path / TEST_IMAGES_NAME).exists()


CONFLICTS = """image,split,place,label,name
0,train,5,cat,train/cat.png
0,test,3,dog,test/dog.png
0,test,4,cat,test/cat.png
1,train,1,ship,train/ship.png
1,test,7,ship,test/ship.png
2,train,2,cat,a.png
2,train,9,dog,b.png
"""


def test_test_images_with_identical_images_of_other_labels_are_named(tmp_path):
    (tmp_path / "duplicates.csv").write_text(CONFLICTS)
    assert classification.read_conflicts(tmp_path, ["cat", "dog", "ship"]) == [
        {"index": 3, "label": 0, "name": "train/cat.png"},
        {"index": 4, "label": 1, "name": "test/dog.png"},
    ]


def test_label_conflicts_are_read_if_the_records_have_any(small_records, tmp_path, monkeypatch):
    monkeypatch.setattr(classification, "read_conflicts", lambda *arguments: ["conflict"])
    test, manifest = stream(small_records), read_manifest(small_records)
    guesses = Predictions(np.zeros(101, int), np.eye(10, dtype=np.float32)[np.zeros(101, int)])
    for number, conflicts in ((0, []), (1, ["conflict"])):
        doubtful = {**manifest, "findings": {"two_labels": number}}
        assert evaluated_of(guesses, test, doubtful, tmp_path)[0]["label_conflicts"] == conflicts


@pytest.mark.parametrize("is_right", [True, False])
def test_a_split_without_the_first_labels_leaves_no_sheet_of_examples(small_records, tmp_path, monkeypatch, is_right):
    monkeypatch.setattr(classification, "EXAMPLES_PER_LABEL", 0)
    test = stream(small_records)
    labels = np.concatenate([labels for _, labels in test.evaluation()])
    guesses = Predictions(labels, np.eye(10, dtype=np.float32)[labels if is_right else 9 - labels])
    facts, tiles = evaluated_of(guesses, test, read_manifest(small_records), tmp_path)
    assert facts["examples"] == []
    assert (len(tiles) == 0) == is_right
    assert not (tmp_path / EXAMPLES_NAME).exists()


def test_the_accuracy_without_the_test_images_that_train_holds(small_records, tmp_path):
    test, manifest = stream(small_records), read_manifest(small_records)
    labels = np.concatenate([labels for _, labels in test.evaluation()])
    given = labels.copy()
    # Right but for one that train holds and one that it does not.
    given[[3, 50]] = (labels[[3, 50]] + 1) % 10
    guesses = Predictions(labels, np.eye(10, dtype=np.float32)[given])
    assert evaluated_of(guesses, test, manifest, tmp_path)[0]["without_duplicates"] is None
    doubtful = {**manifest, "findings": {"test_in_train": [3, 4, 5]}, "warnings": [["Odd", "It is."]]}
    facts, _ = evaluated_of(guesses, test, doubtful, tmp_path)
    assert facts["without_duplicates"] == {"num_examples": len(labels) - 3, "accuracy": pytest.approx(97 / 98)}
    assert facts["without_near_duplicates"] is None
    assert facts["data_warnings"] == [["Odd", "It is."]]
    similar = {**manifest, "findings": {"test_in_train": [3, 4, 5], "near_test_in_train": [50, 51]}}
    facts, _ = evaluated_of(guesses, test, similar, tmp_path)
    assert facts["without_duplicates"] == {"num_examples": len(labels) - 3, "accuracy": pytest.approx(97 / 98)}
    assert facts["without_near_duplicates"] == {"num_examples": len(labels) - 5, "accuracy": 1.0}


def test_a_network_that_diverged_is_sure_of_nothing(network, small_records, tmp_path):
    model = keras.models.clone_model(network)
    model.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])
    model.compile(loss="sparse_categorical_crossentropy")
    facts, _ = looked_at(model, stream(small_records), small_records, tmp_path)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["test_images"][0]["confidence"] == 0


def test_large_images_are_scaled_down_to_a_tile():
    image = np.full((120, 200, 1), 7, np.uint8)
    tiles = evaluation.as_tiles(np.stack([image, image]))
    assert tiles.shape == (2, 38, 64, 1)
    assert (tiles == 7).all()


def test_the_predictions_of_all_test_images_are_read_back_in_stored_order(evaluated, small_records):
    folder, facts, _ = evaluated
    read = read_predictions(folder, ImageEvaluation.model_validate(facts))
    labels = np.concatenate([labels for _, labels in stream(small_records).evaluation()])
    np.testing.assert_array_equal(read.labels, labels)
    assert (read.labels == read.predicted).mean() == pytest.approx(facts["accuracy"])
    assert (read.second != read.predicted).all()
    assert (read.probability >= read.second_probability).all()
    is_right = read.labels == read.predicted
    np.testing.assert_array_equal(read.probability[is_right], read.label_probability[is_right])
    most_confident = facts["test_images"][0]
    assert read.probability[most_confident["index"]] == pytest.approx(most_confident["confidence"], abs=1e-6)
    # The keys are those in the records.
    assert read.keys == stored_keys(small_records)
    assert len(set(read.keys)) == len(labels)


def stored_keys(records: Path) -> list[str]:
    """The key in each test record, in stored order."""
    keys = []
    for file in stream(records).split.files:
        for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
            keys.append(tf.train.Example.FromString(record).features.feature["key"].bytes_list.value[0].decode())
    return keys


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("probability", "share"), "expected a table of predictions"),
        (lambda text: text.rsplit("\n", 2)[0] + "\n", "expected 101 rows, found 100"),
        (lambda text: text.replace("stripes", "kite"), "expected labels of evaluation.json"),
        (lambda text: text.rsplit(",", 1)[0] + ",1.5\n", "probabilities from 0 to 1"),
        (lambda text: text.rsplit(",", 1)[0] + ",nan\n", "probabilities from 0 to 1"),
        (lambda text: text.rsplit(",", 1)[0] + ",\n", "probabilities from 0 to 1"),
    ],
)
def test_a_damaged_file_of_predictions_is_refused(evaluated, tmp_path, change, message):
    folder, facts, _ = evaluated
    text = (folder / PREDICTIONS_NAME).read_text()
    assert change(text) != text
    (tmp_path / PREDICTIONS_NAME).write_text(change(text))
    with pytest.raises(DamagedArtifactError, match=message):
        read_predictions(tmp_path, ImageEvaluation.model_validate(facts))


def test_a_run_of_before_has_no_predictions(evaluated, tmp_path):
    assert read_predictions(tmp_path, ImageEvaluation.model_validate(evaluated[1])) is None
