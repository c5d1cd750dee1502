"""The figures of an exported network count each probability, whether it became larger or smaller."""

import numpy as np
import pytest

from pipeline.problems.image_classification import ImageClassification
from pipeline.problems.image_values import Regression
from pipeline.problems.next_token import NextToken


def setup_module() -> None:
    global export
    from pipeline.runs import export


def test_the_largest_difference_counts_a_probability_that_became_smaller():
    tally = {"accuracy": 0, "agreement": 0, "largest_difference": 0.0}
    expected, found = np.array([[0.6, 0.2, 0.2]]), np.array([[0.4, 0.3, 0.3]])
    export._add(tally, found, expected, np.array([0]), ImageClassification().answers)
    assert tally == {"accuracy": 1, "agreement": 1, "largest_difference": pytest.approx(0.2)}


def test_an_output_that_is_not_a_number_stays_in_the_largest_difference():
    tally = {"accuracy": 0, "agreement": 0, "largest_difference": 0.0}
    for found in (np.array([[np.nan, 0.2, 0.2]]), np.array([[0.6, 0.2, 0.2]])):
        export._add(tally, found, np.array([[0.6, 0.2, 0.2]]), np.array([0]), ImageClassification().answers)
    assert np.isnan(tally["largest_difference"])


@pytest.mark.parametrize(("threshold", "agreement", "accuracy"), [(0.2, 1 / 3, 2 / 3), (0.5, 1, 1 / 2)])
def test_several_labels_agree_as_a_whole_and_at_their_thresholds(threshold, agreement, accuracy):
    """At one half, both models would find neither label in any image."""
    expected, labels = np.array([[0.3, 0.1], [0.1, 0.1], [0.3, 0.3]]), np.array([[1, 0], [0, 0], [1, 1]])
    found = np.array([[0.1, 0.1], [0.1, 0.1], [0.3, 0.1]])
    tally = {"accuracy": 0, "agreement": 0, "largest_difference": 0.0}
    export._add(tally, found, expected, labels, lambda outputs: (outputs >= [threshold] * 2).astype(np.uint8))
    assert tally == pytest.approx({"accuracy": 3 * accuracy, "agreement": 3 * agreement, "largest_difference": 0.2})


def test_a_text_agrees_by_its_share_of_characters():
    expected = np.eye(3)[[[0, 1, 2, 0]]]
    tally = {"accuracy": 0, "agreement": 0, "largest_difference": 0.0}
    answers = NextToken().answers
    export._add(tally, np.eye(3)[[[0, 1, 2, 1]]], expected, np.array([[0, 1, 1, 1]]), answers)
    assert tally == {"accuracy": 0.75, "agreement": 0.75, "largest_difference": 1}


def test_numbers_agree_if_each_differs_by_at_most_a_hundredth_of_its_deviation():
    expected, found = np.zeros((3, 2)), np.array([[0.09, 0.9], [0.11, 0.9], [0.09, 1.1]])
    tally = {"accuracy": 0, "agreement": 0, "largest_difference": 0.0}
    export._add(tally, found, expected, expected, Regression(means=(5.0, 5.0), deviations=(10.0, 100.0)).answers)
    assert tally["agreement"] == 1
