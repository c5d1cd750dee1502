"""Judged: by which of its figures a run is the better one."""

import math

import pytest
from report_runs import TEMPLATES

from pipeline.artifacts.fingerprint import code_digests
from pipeline.problems.results import RESULTS, merit

SURER = {"test_accuracy": 0.5, "test_loss": 1.4}
MORE_OFTEN_RIGHT = {"test_accuracy": 0.6, "test_loss": 1.5}


def test_images_are_judged_by_accuracy_and_texts_by_loss():
    assert merit("image_classification", MORE_OFTEN_RIGHT) > merit("image_classification", SURER)
    assert merit("next_token", SURER) > merit("next_token", MORE_OFTEN_RIGHT)


@pytest.mark.parametrize("problem", ["image_classification", "next_token", "another version's"])
@pytest.mark.parametrize("figure", [None, math.nan])
def test_a_run_without_a_metric_ranks_last(problem, figure):
    assert merit(problem, {"test_accuracy": figure, "test_loss": figure}) == -math.inf
    assert merit(problem, {"test_accuracy": 0.0, "test_loss": 1e38}) > -math.inf
    # NaN counts as the first label.
    assert merit(problem, {"test_accuracy": 0.9, "test_loss": figure}) == -math.inf


def test_another_way_to_judge_runs_trains_none_of_them_again():
    assert "pipeline.problems.results" not in code_digests("pipeline.training.train")


def test_the_cards_of_each_kind_have_their_templates():
    files = {file.name for file in TEMPLATES.glob("*-card*")}
    kinds = {kind and f"-{kind}" for kind in ("", *(RESULTS.load(name).card_templates for name in RESULTS.builtin))}
    assert files == {f"{name}-card{kind}.md.j2" for name in ("model", "dataset") for kind in kinds}
