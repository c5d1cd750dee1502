"""Predictions and metrics of classifiers of any examples, as files, so that the report needs no records.

Views of images are for test-time augmentation. The functions from ``steps`` on concern one label. There, ``labels`` are
bool and ``probabilities`` float (examples,). Equal probabilities are one step of a curve.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np
import scipy

from pipeline.models.model import PROBABILITIES, as_probabilities, kind_trained_on
from pipeline.problems.problem import PREDICTIONS_NAME, EvaluatedRun, Stream
from pipeline.records.features import DUPLICATES_NAME, TEST_NAMES

if TYPE_CHECKING:
    import tensorflow as tf

CALIBRATION_BINS = 15
MAX_MISTAKES = 24
MAX_CONFUSIONS, MISTAKES_PER_CONFUSION = 6, 4
MAX_UNCERTAIN = 12
EXAMPLES_PER_LABEL = 6
MAX_EXAMPLE_LABELS = 10
#: Threshold without a validation split to choose it.
HALF = 0.5
# More points of a curve are not visible in a chart.
_MAX_POINTS = 200


@dataclass(frozen=True)
class Predictions:
    """Predictions for a split, in its stored order.

    ``labels`` are the true labels, int32 (examples,). ``outputs`` are float32 (examples, num_labels), of the ``kind``
    "logits" or "probabilities", and NaN if the model diverged.
    """

    labels: np.ndarray
    outputs: np.ndarray
    kind: str = PROBABILITIES


@dataclass(frozen=True)
class View:
    """A view of an image for test-time augmentation. The mean over several predictions is more often correct.

    ``down`` and ``right`` shift the image by pixels, with reflection at its edges.
    """

    weight: float
    mirrored: bool = False
    down: int = 0
    right: int = 0

    def of(self, images: "np.ndarray | tf.Tensor") -> "np.ndarray | tf.Tensor":
        """Return this view of images (batch, height, width, channels). The identity view accepts any array."""
        if not (self.mirrored or self.down or self.right):
            return images
        # A trained model is loaded with JAX alone, too.
        import tensorflow as tf

        height, width = images.shape[1:3]
        rows, columns = _reflected(height, self.down), _reflected(width, self.right)
        return tf.gather(tf.gather(images, rows, axis=1), columns[::-1] if self.mirrored else columns, axis=2)


def _reflected(size: int, shift: int) -> np.ndarray:
    """Return the source of each row or column, int (size,)."""
    max_index = size - 1
    # A single row or column has no reflection.
    return np.clip(max_index - np.abs(max_index - np.abs(np.arange(size) - shift)), 0, max_index)


_SHIFTS = ((0.5, 0, 0), (0.25, 1, 1), (0.25, -1, -1))

#: Setting → views, whose weights add up to 1, from Jordan 2024. "flip" averages the image and its mirror image.
#: "flip_translate" uses half of that, and a quarter each of both shifted by a pixel to the lower right and upper left.
VIEWS = {
    "none": (View(1.0),),
    "flip": (View(0.5), View(0.5, mirrored=True)),
    "flip_translate": tuple(
        View(weight / 2, mirrored, down, right) for weight, down, right in _SHIFTS for mirrored in (False, True)
    ),
}


def predict(model: keras.Model, stream: Stream, test_time_augmentation: str = "none") -> Predictions:
    """Return the weighted mean of a pass per view of the images."""
    outputs = 0
    for view in VIEWS[test_time_augmentation]:
        batches = stream.evaluation().map(lambda images, labels, view=view: (view.of(images), labels))
        outputs = outputs + np.float32(view.weight) * model.predict(batches, verbose=0).astype(np.float32)
    labels = np.concatenate([labels for _, labels in stream.evaluation().as_numpy_iterator()])
    return Predictions(labels, outputs, kind_trained_on(model))


def metrics(model: keras.Model, predictions: Predictions) -> dict[str, float]:
    """Return the mean ``loss`` of the compiled model and the ``accuracy``, like Keras's evaluate."""
    losses = keras.losses.get(model.loss)(predictions.labels, keras.ops.convert_to_tensor(predictions.outputs))
    correct = predictions.outputs.argmax(axis=1) == predictions.labels
    return {"loss": float(keras.ops.mean(losses)), "accuracy": float(correct.mean())}


def quick_metrics(model: keras.Model, stream: Stream) -> dict[str, float | None]:
    """Return the same from Keras's evaluate, which stores no outputs. Numbers have no accuracy."""
    results = model.evaluate(stream.evaluation(), verbose=0, return_dict=True)
    return {name: results.get(name) for name in ("loss", "accuracy")}


def evaluate_labels(predictions: Predictions, run: EvaluatedRun) -> tuple[dict, list[dict], list[dict]]:
    """Compare predictions with the labels, and write test_predictions.csv.

    Returns contents of evaluation.json, the entries of ``shown_examples``, and those of random examples of each label.
    Entries have their ``index``, ``label`` and ``predicted``, and their ``confidence`` or their ``name``.
    """
    manifest, labels, names = run.manifest, predictions.labels, list(run.manifest["label_names"])
    # A diverged model gives NaN as its confidence.
    probabilities = np.nan_to_num(as_probabilities(predictions.outputs, predictions.kind), nan=0.0)
    predicted, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1).clip(0, 1)
    # All runs on the same records have the same examples.
    order = np.random.default_rng(0).permutation(len(labels))
    of_labels = [order[labels[order] == label][:EXAMPLES_PER_LABEL] for label in range(MAX_EXAMPLE_LABELS)]
    records = Path(run.test.split.files[0]).parent
    keys = read_names(records)
    write_predictions(run.folder / PREDICTIONS_NAME, keys, names, labels, probabilities)

    def entry(index: int) -> dict:
        return {"index": index, "label": int(labels[index]), "predicted": int(predicted[index])}

    findings = manifest.get("findings", {})
    exact, near = findings.get("test_in_train", []), findings.get("near_test_in_train", [])
    facts = {
        "label_names": names,
        "label_counts": {split: dict(entry["label_counts"]) for split, entry in manifest["splits"].items()},
        **judge(labels, predicted, confidence, num_labels=len(names)),
        "data_warnings": [list(warning) for warning in manifest.get("warnings", ())],
        "without_duplicates": _without(exact, labels == predicted),
        "without_near_duplicates": _without(near and [*exact, *near], labels == predicted),
        "label_conflicts": read_conflicts(records, names) if findings.get("two_labels") else [],
        **({"binary": _second_label(labels == 1, probabilities[:, 1], run)} if len(names) == 2 else {}),
    }
    shown = [
        entry(index) | {"confidence": round(float(confidence[index]), 6)}
        for index in shown_examples(labels, predicted, confidence)
    ]
    random = [entry(index) | {"name": keys[index]} for index in np.concatenate(of_labels).tolist()]
    return facts, shown, random


def _second_label(labels: np.ndarray, probabilities: np.ndarray, run: EvaluatedRun) -> dict:
    """Return curves of the second of two labels, and its scores with the best threshold of the validation split."""
    threshold = HALF
    if run.validation:
        known = predict(run.model, run.validation)
        shares = np.nan_to_num(as_probabilities(known.outputs, known.kind)[:, 1], nan=0.0)
        threshold = best_threshold(known.labels == 1, shares)
    decided = probabilities >= threshold
    return {
        "roc_auc": roc_auc(labels, probabilities),
        "average_precision": average_precision(labels, probabilities),
        "threshold": threshold,
        "threshold_of": "validation" if run.validation else "",
        "accuracy": float((decided == labels).mean()),
        **scores(labels, decided),
        **curves(labels, probabilities),
    }


def shown_examples(labels: np.ndarray, predicted: np.ndarray, confidence: np.ndarray) -> list[int]:
    """Return the indices of the test examples that the report shows, each once. All arguments are (examples,).

    These are the most confident mistakes, the most confident mistakes of each of the most frequent confusions, and the
    correct predictions with the least confidence.
    """
    order = np.argsort(-confidence, kind="stable")
    is_wrong = labels[order] != predicted[order]
    mistakes, correct = order[is_wrong], order[~is_wrong]
    pairs = np.stack([labels[mistakes], predicted[mistakes]], axis=1)
    confusions, counts = np.unique(pairs, axis=0, return_counts=True)
    confused = [
        mistakes[(pairs == pair).all(axis=1)][:MISTAKES_PER_CONFUSION]
        for pair in confusions[np.argsort(-counts, kind="stable")][:MAX_CONFUSIONS]
    ]
    chosen = [mistakes[:MAX_MISTAKES], *confused, correct[::-1][:MAX_UNCERTAIN]]
    return list(dict.fromkeys(np.concatenate(chosen).tolist()))


def read_conflicts(records: Path, names: Sequence[str]) -> list[dict]:
    """Return the test examples with an identical content and another label.

    Each has its ``index`` in stored order, and the ``label`` and the ``name`` of the first such example.
    """
    conflicts = []
    with (records / DUPLICATES_NAME).open(newline="", encoding="utf-8") as file:
        for _, rows in groupby(csv.DictReader(file), itemgetter("image")):
            first, *others = rows
            other = next((row for row in others if row["label"] != first["label"]), None)
            for row in (first, *others) if other else ():
                copy = other if row["label"] == first["label"] else first
                if row["split"] == "test":
                    label = names.index(copy["label"])
                    conflicts.append({"index": int(row["place"]), "label": label, "name": copy["name"]})
    return conflicts


def read_names(records: Path) -> list[str]:
    """Return the names of the test examples in stored order, see ``TEST_NAMES``."""
    with (records / TEST_NAMES).open(newline="", encoding="utf-8") as file:
        return [name for (name,) in csv.reader(file)][1:]


def write_predictions(
    path: Path, keys: Sequence[str], names: Sequence[str], labels: np.ndarray, probabilities: np.ndarray
) -> None:
    """Write a row per test example in stored order, with the labels by name.

    ``probabilities`` is float (examples, num_labels). Those of the predicted, the second and the actual label are
    rounded to six digits.
    """
    rows = np.arange(len(labels))
    predicted, others = probabilities.argmax(axis=1), probabilities.copy()
    others[rows, predicted] = -1
    chosen = [predicted, others.argmax(axis=1), labels]
    columns = [[names[label] for label in each] for each in chosen]
    shares = [[f"{share:.6g}" for share in probabilities[rows, each].clip(0, 1)] for each in chosen]
    header = ("key", "label", "predicted", "probability", "second", "second_probability", "label_probability")
    table = zip(keys, columns[2], columns[0], shares[0], columns[1], shares[1], shares[2], strict=True)
    with path.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
        csv.writer(file).writerows([header, *table])


def judge(labels: np.ndarray, predicted: np.ndarray, confidence: np.ndarray, *, num_labels: int) -> dict:
    """Compute metrics of predictions, as plain JSON data.

    ``labels`` and ``predicted`` are int (examples,), from 0. ``confidence`` is the probability of the predicted label,
    float (examples,) from 0 to 1. Returns ``num_examples``, ``accuracy`` and ``expected_calibration_error`` with the
    ``calibration`` bins. ``confusion_matrix`` counts by true label (row) and predicted label (column). ``classes`` has
    ``examples``, ``precision``, ``recall`` and ``f1`` per label, null for a division by zero.
    """
    confusion = np.zeros((num_labels, num_labels), np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    correct = labels == predicted
    return {
        "num_examples": len(labels),
        "accuracy": float(correct.mean()),
        "confusion_matrix": confusion.tolist(),
        "classes": [
            {"examples": int((labels == label).sum()), **scores(labels == label, predicted == label)}
            for label in range(num_labels)
        ],
        **calibration(correct, confidence),
    }


def calibration(correct: np.ndarray, confidence: np.ndarray) -> dict:
    """Compute bins of equal width by confidence, float (examples,) from 0 to 1. ``correct`` is bool (examples,).

    The ``calibration`` has ``low``, ``high``, ``examples`` and the mean ``confidence`` and ``accuracy`` per bin, null
    if the bin is empty. ``expected_calibration_error`` is their mean distance, weighted by the examples of the bins
    (Guo et al. 2017, equation 3).
    """
    bin_index = np.minimum((confidence * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    counts, confidence_sums, correct_sums = (
        np.bincount(bin_index, weights, minlength=CALIBRATION_BINS) for weights in (None, confidence, correct)
    )
    bins = [
        {
            "low": index / CALIBRATION_BINS,
            "high": (index + 1) / CALIBRATION_BINS,
            "examples": int(count),
            "confidence": _share(confidence_sums[index], count),
            "accuracy": _share(correct_sums[index], count),
        }
        for index, count in enumerate(counts)
    ]
    error = float(np.abs(correct_sums - confidence_sums).sum() / len(correct))
    return {"calibration": bins, "expected_calibration_error": error}


def _share(count: float, total: float) -> float | None:
    return float(count / total) if total else None


def _without(duplicates: Sequence[int], correct: np.ndarray) -> dict | None:
    """Return the accuracy on test examples that the train split does not contain, None without duplicates."""
    if not duplicates:
        return None
    unique = np.delete(correct, duplicates)
    return {"num_examples": len(unique), "accuracy": _share(unique.sum(), len(unique))}


def steps(labels: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hits, examples and threshold from each different probability on, greatest first, each (steps,)."""
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order], labels[order].cumsum()
    ends = np.flatnonzero(np.append(values[1:] != values[:-1], True))
    return hits[ends], ends + 1, values[ends]


def roc_auc(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the probability that an example of the label ranks above another one. None without one of both."""
    if labels.all() or not labels.any():
        return None
    rank_sum = scipy.stats.mannwhitneyu(probabilities[labels], probabilities[~labels]).statistic
    return float(rank_sum / labels.sum() / (~labels).sum())


def curves(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, list[list[float]]]:
    """Return points of ``roc`` (false positive rate, recall) and ``precision_recall`` (recall, precision).

    Both are empty unless there are examples with and without the label.
    """
    if labels.all() or not labels.any():
        return {"roc": [], "precision_recall": []}
    hits, chosen, _ = steps(labels, probabilities)
    shown = np.unique(np.linspace(0, len(hits) - 1, min(_MAX_POINTS, len(hits))).round().astype(int))
    recall, false_rate = hits / labels.sum(), (chosen - hits) / (~labels).sum()
    points = {"roc": (false_rate, recall), "precision_recall": (recall, hits / chosen)}
    rounded = {name: np.stack(pair, axis=1)[shown].round(5).tolist() for name, pair in points.items()}
    return rounded | {"roc": [[0.0, 0.0], *rounded["roc"]]}


def scores(actual: np.ndarray, decided: np.ndarray) -> dict[str, float | None]:
    """Return ``precision``, ``recall`` and ``f1`` of decisions, bool of any shape. None for a division by zero."""
    hits, chosen, positive = int((actual & decided).sum()), int(decided.sum()), int(actual.sum())
    pairs = {"precision": (hits, chosen), "recall": (hits, positive), "f1": (2 * hits, chosen + positive)}
    return {name: count / total if total else None for name, (count, total) in pairs.items()}


def average_precision(labels: np.ndarray, probabilities: np.ndarray) -> float | None:
    """Return the area under the steps of precision over recall. None without an example of the label."""
    if not labels.any():
        return None
    hits, chosen, _ = steps(labels, probabilities)
    return float((np.diff(hits, prepend=0) * hits / chosen).sum() / labels.sum())


def best_threshold(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the threshold with the greatest F1, halfway between two probabilities. Without an example, one half."""
    if not labels.any():
        return HALF
    hits, chosen, values = steps(labels, probabilities)
    best = int((hits / (chosen + labels.sum())).argmax())
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)
