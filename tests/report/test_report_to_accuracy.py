"""Operations and seconds to an accuracy, and the accuracy with test-time augmentation beside the plain one."""

import numpy as np
import pytest
from report_runs import EPOCH, run_of


def setup_module() -> None:
    global build_report, circumstances, read_run, metric, tiles, to_accuracy
    from pipeline.report import build_report
    from pipeline.report.data.measures import to_accuracy
    from pipeline.report.data.reading import read_run
    from pipeline.report.sections.runs import circumstances, tiles
    from pipeline.report.sections.scoreboard import metric


TIMES = dict.fromkeys(
    (
        *("step_seconds", "step_alone_seconds", "input_alone_seconds", "input_wait_share"),
        *("compilation_seconds", "evaluation_seconds", "checkpoint_seconds"),
    )
)


def rows(*accuracies):
    return [EPOCH | {"epoch": at, "test_accuracy": one} for at, one in enumerate(accuracies, start=1)]


def run(*accuracies, flops=1e12, steps=50, problem="image_classification", with_views=None, kept=None):
    about = {"problem": problem, "steps_per_epoch": steps, "test_tta_accuracy": with_views, "kept_epoch": kept}
    return run_of(**about, time_breakdown=TIMES | {"step_flops": flops}, curves=rows(*accuracies))


def test_of_each_goal_the_first_epoch_that_reached_it():
    found = to_accuracy(run(0.85, 0.905, 0.90, 0.931, 0.939))
    assert [(one.accuracy, one.epoch) for one in found] == [(0.90, 2), (0.92, 4)]
    assert [one.flops for one in found] == pytest.approx([1e14, 2e14])
    assert [one.seconds for one in found] == pytest.approx([2 * 12.4, 4 * 12.4])


def test_nine_of_ten_images_are_90_percent_as_float32_holds_them_too():
    found = to_accuracy(run(0.85, float(np.float32(0.9)), with_views=float(np.float32(0.92))))
    assert [(one.accuracy, one.epoch, one.with_views) for one in found] == [(0.90, 2, False), (0.92, 2, True)]
    assert to_accuracy(run(0.8999)) == []


def test_a_goal_that_took_test_time_augmentation_took_the_epochs_to_the_one_kept():
    found = to_accuracy(run(0.85, 0.905, 0.915, with_views=0.925))
    assert [(one.accuracy, one.epoch, one.with_views) for one in found] == [(0.90, 2, False), (0.92, 3, True)]
    assert found[1].flops == pytest.approx(1.5e14)
    assert [one.epoch for one in to_accuracy(run(0.85, 0.88, 0.86, with_views=0.91, kept=2))] == [2]
    assert to_accuracy(run(0.85, with_views=0.89)) == []
    assert to_accuracy(run(with_views=0.95)) == []


def test_unknown_metrics_are_left_out():
    assert to_accuracy(run(0.5, None, 0.899)) == []
    assert to_accuracy(run(0.95, problem="next_token")) == []
    # Its runs are ranked by accuracy, but the goals are those for CIFAR-10.
    assert to_accuracy(run(0.95, problem="another version's")) == []
    assert [one.flops for one in to_accuracy(run(0.95, flops=None))] == [None] * 3
    assert [one.flops for one in to_accuracy(run(0.95).model_copy(update={"time_breakdown": None}))] == [None] * 3


def test_the_report_says_both(make_run):
    folder = make_run(
        curves=rows(0.88, 0.912),
        test_accuracy=0.912,
        test_tta_accuracy=0.9234,
        validation_accuracy=0.91,
        validation_tta_accuracy=0.92,
        test_time_augmentation="flip",
        steps_per_epoch=50,
        time_breakdown=TIMES | {"step_flops": 2e12},
    )
    one = read_run(folder)
    assert ("Training to 90% test accuracy", "2.00e+14 FLOP, 24.8 s, 2 epochs") in circumstances(one)
    assert ("Training to 92% test accuracy with test-time augmentation", "2.00e+14 FLOP, 24.8 s, 2 epochs") in (
        circumstances(one)
    )
    assert ("Test accuracy with test-time augmentation", "92.34%") in tiles(one)
    (scenario,) = build_report([folder], current=[]).scenarios
    cell = metric(scenario)
    assert cell.text == "91.20%"
    assert cell.notes == ("92.34% with TTA", "validation 91.00%", "validation 92.00% with TTA")


def test_a_run_without_views_says_nothing_of_them(make_run):
    assert not [what for what, _ in tiles(read_run(make_run())) if "test-time" in what]
