"""Judged: by which of its figures a run is the better one."""

import math

import pytest

from pipeline.artifacts.fingerprint import code_digests
from pipeline.problems.results import merit

SURER = {"val_accuracy": 0.5, "val_loss": 1.4}
MORE_OFTEN_RIGHT = {"val_accuracy": 0.6, "val_loss": 1.5}


def test_images_are_judged_by_accuracy_and_texts_by_loss():
    assert merit("image_classification", MORE_OFTEN_RIGHT) > merit("image_classification", SURER)
    assert merit("next_token", SURER) > merit("next_token", MORE_OFTEN_RIGHT)


@pytest.mark.parametrize("problem", ["image_classification", "next_token", "another version's"])
@pytest.mark.parametrize("figure", [None, math.nan])
def test_what_has_no_figure_is_worse_than_all_that_has_one(problem, figure):
    assert merit(problem, {"val_accuracy": figure, "val_loss": figure}) == -math.inf
    assert merit(problem, {"val_accuracy": 0.0, "val_loss": 1e38}) > -math.inf


def test_another_way_to_judge_runs_trains_none_of_them_again():
    assert "pipeline.problems.results" not in code_digests("pipeline.training.train")
