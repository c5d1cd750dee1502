"""Suspected label errors of synthetic predictions, whose precision and recall follow from the model."""

import numpy as np

from pipeline.report.data.labels import suspected_label_errors

LABELS, EXAMPLES, FLIPPED = 10, 40_000, 0.03
# A calibrated model is sure of half of the examples.
SURE, UNSURE = 0.99, 0.6


def draw(flipped: float, seed: int = 0):
    """Labels with flips, and the predictions of a calibrated model for the labels without."""
    rng = np.random.default_rng(seed)
    confidence = np.where(np.arange(EXAMPLES) % 2, SURE, UNSURE)
    predicted = rng.integers(LABELS, size=EXAMPLES)
    shift = np.where(rng.random(EXAMPLES) < confidence, 0, rng.integers(1, LABELS, EXAMPLES))
    true = (predicted + shift) % LABELS
    is_flipped = rng.random(EXAMPLES) < flipped
    labels = np.where(is_flipped, true + rng.integers(1, LABELS, EXAMPLES), true) % LABELS
    others = (1 - confidence) / (LABELS - 1)
    return is_flipped, labels, predicted, confidence, np.where(labels == predicted, confidence, others)


def test_flipped_labels_are_suspected_with_the_precision_and_recall_of_the_model():
    is_flipped, *predictions = draw(FLIPPED)
    labels, predicted, *_ = predictions
    suspects = suspected_label_errors(*predictions)
    # The mean probability of a label on its examples is about 0.66. Only the sure half of the examples exceeds it.
    # There the model contradicts each flipped label, except for 1% of its own errors, 1 of 9 of which meets the flip.
    recall = 0.5 * (1 - (1 - SURE) / 9)
    contradicted = (FLIPPED * (1 - (1 - SURE) / 9), (1 - FLIPPED) * (1 - SURE))
    precision = contradicted[0] / sum(contradicted)
    # 3 standard errors of about 1,200 flips and 800 suspects are 0.05.
    assert abs(is_flipped[suspects].sum() / is_flipped.sum() - recall) < 0.05
    assert abs(is_flipped[suspects].mean() - precision) < 0.05
    assert precision > 0.75
    # A list of all mistakes would have 3 flips among 3 + 20.5 of 100 examples.
    assert is_flipped[labels != predicted].mean() < 0.15


def test_without_flips_a_calibrated_model_suspects_only_its_confident_errors():
    _, *predictions = draw(0)
    assert len(suspected_label_errors(*predictions)) < 0.5 * (1 - SURE) * EXAMPLES + 3 * np.sqrt(200)
    labels = np.arange(100) % LABELS
    assert not len(suspected_label_errors(labels, labels, np.ones(100), np.ones(100)))


def test_the_largest_margin_comes_first_and_conflicts_come_before_all():
    labels, predicted = np.array([0, 0, 1, 1, 0, 1]), np.array([0, 1, 0, 1, 1, 1])
    probability, label_probability = np.array([0.9, 0.8, 0.9, 0.6, 0.95, 0.7]), np.array([0.9, 0.2, 0.1, 0.6, 0.0, 0.7])
    assert suspected_label_errors(labels, predicted, probability, label_probability).tolist() == [4, 2, 1]
    found = suspected_label_errors(labels, predicted, probability, label_probability, [3, 1])
    assert found.tolist() == [1, 3, 4, 2]


def test_a_label_without_examples_and_a_split_without_any_suspect_nothing():
    assert suspected_label_errors(*np.array([[0, 0], [3, 0]]), np.ones(2), np.zeros(2)).tolist() == []
    assert suspected_label_errors(*np.zeros((2, 0), int), *np.zeros((2, 0))).tolist() == []


def test_equal_probabilities_reach_their_mean_in_spite_of_rounding():
    labels, predicted = np.repeat([0, 1], 30), np.repeat([0, 1], 30)
    predicted[0] = 1
    label_probability = np.where(labels == predicted, 0.8, 0.1)
    assert suspected_label_errors(labels, predicted, np.full(60, 0.8), label_probability).tolist() == [0]
