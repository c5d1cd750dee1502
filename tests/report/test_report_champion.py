"""The newest run against the run in use: the tests on the same examples, and the gate that requires "not worse"."""

import csv
import json
import re

import numpy as np
import pytest
from report_history_entries import DIGESTS
from report_runs import render, report_of, write_evaluation, write_predictions

NEWEST, CHAMPION = "f" * 64, "c" * 64
OTHER = DIGESTS | {"test": "9" * 64}


def setup_module() -> None:
    global Gate, MAX_FALSE_ALARMS, binom, findings, interval_of, worse_probability
    from scipy.stats import binom

    from pipeline.report import Gate
    from pipeline.report.data.champion import MAX_FALSE_ALARMS, interval_of, worse_probability
    from pipeline.report.sections.summary import findings


@pytest.fixture
def runs(make_run):
    """A function that writes the run in use and the newest run, with these indices of 90 predictions wrong."""

    def write(champion, newest, *, labels=("cat", "dog", "ship"), **changes):
        folders = []
        for name, wrong, day in (("used", champion, 1), ("newest", newest, 3)):
            about = {
                "fingerprint": (CHAMPION, NEWEST)[name == "newest"],
                "content_digests": DIGESTS,
                "test_examples": 90,
            }
            date = {"finished_at": f"2026-03-{day:02d}T10:00:00+00:00"}
            folder = make_run(name, **about | date | (changes if name == "newest" else {}))
            write_evaluation(folder, labels)
            folders.append(folder if wrong is None else write_predictions(folder, wrong, labels))
        return folders

    return write


def judged(folders, champion="used", *, current=(NEWEST,), **gate):
    gate = Gate(not_worse=True, **gate)
    return report_of(folders, current, gate=gate, champion=champion, published=[])


def test_a_run_that_is_worse_on_the_same_examples_fails_the_gate_and_names_the_labels(runs, tmp_path):
    # Every third image is a ship. The newest run gets half of them wrong.
    folders = runs(set(), {*range(2, 46, 3)})
    report = judged(folders)
    (failure,) = report.gate.failures
    assert report.gate.not_worse
    assert "The newest run is worse (p = 3.1e-05). Worse labels: ship. Required: p of at least 0.05" in failure
    assert "On the same 90 images, the test accuracy of the run in use, " in failure
    assert "(cccccccc), is 100.00%. That of the newest run is 83.33%." in failure
    files = render(folders, tmp_path / "out", [NEWEST], champion="used")
    for name in ("report.md", "report.html"):
        assert "There is no evidence" not in files[name]
        assert "The newest run is worse" in files[name]
    found = json.loads(files["report.json"])["comparison"]
    assert (found["newest"], found["champion"]) == (NEWEST, CHAMPION)
    assert found["labels"][0]["name"] == "ship"
    assert found["interval"][0] < found["total"]["after"] - found["total"]["before"] < found["interval"][1] < 0


@pytest.mark.parametrize("by", ["group", "label"])
def test_a_comparison_of_grouped_images_states_that_p_is_too_small(runs, by):
    changes = {"division": {"by": by, "test_share": 0.2, "validation_share": None}}
    found = judged(runs(set(), set(range(3)), **changes)).comparison
    assert str(found).endswith("so p is too small.") == (by == "group")


@pytest.mark.parametrize("newest", [set(range(3)), {*range(20, 24)}, set()], ids=["equal", "few", "better"])
def test_without_evidence_the_gate_passes_and_the_report_does_not_call_the_runs_equal(runs, newest):
    report = judged(runs(set(range(3)), newest))
    assert report.gate.passed, report.gate.failures
    (sentence,) = [text for text in findings(report) if "run in use" in text]
    assert "There is no evidence that the newest run is worse (p = " in sentence
    assert "90% interval of the difference is " in sentence
    assert "Worse labels" not in sentence


@pytest.mark.parametrize(
    ("champion", "changes", "failure"),
    [
        ("used", {"content_digests": OTHER}, "because they have other test examples."),
        ("used", {"dataset": "synthetic"}, "because they have other test examples."),
        ("gone", {}, "because no undamaged run has its name."),
    ],
)
def test_runs_that_cannot_be_compared_fail_the_gate_with_the_reason(runs, champion, changes, failure):
    report = judged(runs(set(), set(), **changes), champion)
    assert any(failure in text for text in report.gate.failures)
    assert not report.gate.not_judged
    assert report.comparison.total is None


def test_other_examples_of_the_same_number_and_runs_without_predictions_are_not_compared(runs, make_run):
    used, newest = runs(set(), set())
    write_predictions(newest, set(), name="others/{}.jpg")
    assert "other test examples" in judged([used, newest]).gate.failures[0]
    (newest / "test_predictions.csv").unlink()
    assert "there are no results per test example" in judged([used, newest]).gate.failures[0]


def test_a_first_run_and_the_run_in_use_itself_pass(runs):
    folders = runs(set(), set(range(60)))
    for champion in ("", "last"):
        gate = judged(folders[1:], champion).gate
        assert (gate.passed, len(gate.not_judged)) == (True, 1)
        assert "there is no such run yet. ([Report] not_worse)" in gate.not_judged[0]
    gate = judged(folders, "newest").gate
    assert (gate.passed, gate.not_judged) == (True, [])
    assert judged(folders, None).comparison is None


def test_last_is_the_run_before_on_the_same_examples_that_was_not_requested_with_it(runs, make_run):
    folders = runs(set(), set(range(60)))
    for number, changes in enumerate(({"content_digests": OTHER}, {"experiment": "other"}, {"seed": 7}), start=1):
        about = {"fingerprint": str(number) * 64, "content_digests": DIGESTS, "test_examples": 90}
        date = {"finished_at": "2026-03-02T10:00:00+00:00"}
        folder = write_evaluation(make_run(f"between{number}", **about | date | changes))
        folders.append(write_predictions(folder, set(range(60))))
    report = judged(folders, "last", current=[NEWEST, "3" * 64])
    assert report.comparison.champion.fingerprint == CHAMPION
    assert not report.gate.passed


def test_one_label_in_twenty_is_not_called_worse_without_the_correction_for_their_number(runs):
    labels = tuple(f"label {number:02d}" for number in range(30))
    # 5 of 30 examples of a label: p = 1/32, which is rare for one label and common among 30.
    wrong = {*range(0, 30 * 5, 30)}
    report = judged(runs(set(), wrong, labels=labels))
    first = report.comparison.labels[0]
    assert (first.name, first.after) == ("label 00", pytest.approx(25 / 30))
    assert first.p_value == pytest.approx(30 / 32)
    assert report.comparison.total.p_value == pytest.approx(1 / 32)


def rejected_by_mcnemar(rates, examples, times, seed=0):
    """How often a new model fails, of which these rates of answers only become right or only wrong."""
    counts = np.random.default_rng(seed).multinomial(examples, [*rates, 1 - sum(rates)], times)
    gains = (np.repeat([1, -1, 0], row) for row in counts)
    return np.mean([worse_probability(each) < MAX_FALSE_ALARMS for each in gains])


@pytest.mark.parametrize("examples", [50, 400, 2_000])
def test_equal_models_fail_in_at_most_5_of_100_cases(examples):
    times = 3_000
    share = rejected_by_mcnemar((0.05, 0.05), examples, times)
    assert share <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / times)


def test_a_model_that_is_3_points_worse_fails_with_the_derived_power():
    better, worse, examples, times = 0.02, 0.05, 1_000, 3_000
    power = 0.0
    for differing in range(examples + 1):
        # The greatest number of gains among these answers that fails.
        limit = binom.ppf(MAX_FALSE_ALARMS, differing, 0.5)
        limit -= binom.cdf(limit, differing, 0.5) >= MAX_FALSE_ALARMS
        share = binom.cdf(limit, differing, better / (better + worse))
        power += binom.pmf(differing, examples, better + worse) * share
    assert 0.9 < power < 0.99
    share = rejected_by_mcnemar((better, worse), examples, times)
    assert share == pytest.approx(power, abs=4 * np.sqrt(power * (1 - power) / times))


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.02, 0.05), (0.0, 0.0)])
def test_the_interval_contains_the_difference_in_90_of_100_cases_and_has_a_width_without_any(rates):
    examples, times = 300, 1_000
    counts = np.random.default_rng(2).multinomial(examples, [*rates, 1 - sum(rates)], times)
    bounds = np.array([interval_of(np.repeat([1, -1, 0], row), is_share=True) for row in counts])
    contains = (bounds[:, 0] <= rates[0] - rates[1]) & (rates[0] - rates[1] <= bounds[:, 1])
    assert contains.mean() >= 0.9 - 3 * np.sqrt(0.09 / times)
    assert (bounds[:, 1] - bounds[:, 0]).min() > 0.005


def rejected_by_losses(shift, times, examples=40):
    losses = np.random.default_rng(1).exponential(size=(times, 2, examples))
    return np.mean([worse_probability(before - after - shift) < MAX_FALSE_ALARMS for before, after in losses])


def test_equal_losses_fail_in_at_most_5_of_100_cases_and_larger_ones_mostly_do():
    assert rejected_by_losses(0.0, 60) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 60)
    # The mean of 40 differences has a standard deviation of 0.22. A shift of 1 is 4.5 of them.
    assert rejected_by_losses(1.0, 20) > 0.95


def write_values(folder, predicted, actual, facts):
    names = facts["label_names"]
    header = ["key", *(f"actual {name}" for name in names), *(f"predicted {name}" for name in names)]
    with (folder / "test_predictions.csv").open("w", newline="") as file:
        rows = [[f"{n}.jpg", *one, *other] for n, (one, other) in enumerate(zip(actual, predicted, strict=True))]
        csv.writer(file).writerows([header, *rows])
    common = {"counts": {"test": len(actual)}, "num_examples": len(actual), "worst": []}
    tiles = {"tiles": {"per_row": 1, "height": 1, "width": 1}}
    (folder / "evaluation.json").write_text(json.dumps(facts | common | tiles))
    return folder


VALUE = {"mean": 0, "deviation": 2.0, **{name: [0, 0, 0] for name in ("mae", "rmse", "r2")}, "points": []}
REGRESSION = {"problem": "regression", "label_names": ["x", "y"], "values": [VALUE, VALUE]}
SCORE = {"examples": 30, "threshold": 0.5, **dict.fromkeys(("average_precision", "precision", "recall", "f1"), 0.5)}
MULTI_LABEL = {"problem": "multi_label", "label_names": ["red", "round"], "thresholds_of": "", "labels": [SCORE, SCORE]}
MULTI_LABEL |= dict.fromkeys(("accuracy", "exact_matches", "mean_average_precision", "micro_f1", "macro_f1"), 0.5)


@pytest.mark.parametrize("facts", [REGRESSION, MULTI_LABEL], ids=["regression", "multi_label"])
@pytest.mark.parametrize("is_worse", [True, False])
def test_losses_of_numbers_and_of_several_labels_are_compared(make_run, facts, is_worse):
    rng = np.random.default_rng(0)
    actual = rng.integers(0, 2, (60, 2)).astype(float)
    noise = {"used": 0.3, "newest": 0.6 if is_worse else 0.3}
    folders = []
    for name, day in (("used", 1), ("newest", 3)):
        about = {"fingerprint": (CHAMPION, NEWEST)[day == 3], "problem": facts["problem"], "content_digests": DIGESTS}
        folder = make_run(name, finished_at=f"2026-03-{day:02d}T10:00:00+00:00", **about)
        predicted = np.abs(actual - rng.uniform(0.01, noise[name], actual.shape) * 1.1)
        folders.append(write_values(folder, predicted, actual, facts))
    report = judged(folders)
    found = report.comparison
    assert report.gate.passed != is_worse, report.gate.failures
    assert (found.total.after > found.total.before + 0.02) == is_worse
    assert "the test loss of the run in use" in str(found)
    if facts is REGRESSION:
        errors = np.square((np.abs(predicted) - actual) / 2).mean()
        assert found.total.after == pytest.approx(errors)
        assert found.labels == []
    else:
        assert {label.name for label in found.labels} == {"red", "round"}
        assert any(label.is_worse for label in found.labels) == is_worse


@pytest.fixture
def retrained(make_run):
    """A run in use, and a newest one with twice its errors, whose train split has ten times the deviation."""
    actual, folders = np.arange(80.0).reshape(40, 2), []
    for name, day, scale in (("used", 1, 1), ("newest", 3, 10)):
        values = [VALUE | {"deviation": 2.0 * scale}] * 2
        error = day * (-1) ** np.arange(40)[:, None] + np.linspace(0, 0.1, 80).reshape(40, 2)
        about = {"fingerprint": (CHAMPION, NEWEST)[day == 3], "problem": "regression", "content_digests": DIGESTS}
        about["content_digests"] = DIGESTS | {"train": f"{day}" * 64}
        about |= {"test_accuracy": None, "test_loss": float(np.square(error / (2 * scale)).mean())}
        folder = make_run(name, finished_at=f"2026-03-{day:02d}T10:00:00+00:00", **about)
        folders.append(write_values(folder, actual + error, actual, REGRESSION | {"values": values}))
    return folders


def test_a_loss_in_units_of_other_train_data_does_not_hide_larger_errors(retrained):
    """The loss of the newest run is less, as its unit is ten times as large."""
    used, newest = (json.loads((folder / "run.json").read_text())["test_loss"] for folder in retrained)
    assert newest < used / 5
    report = judged(retrained)
    assert report.comparison.total.is_worse
    assert report.comparison.total.after == pytest.approx(newest)
    assert report.comparison.total.before == pytest.approx(used / 100, rel=1e-3)
    assert "The newest run is worse" in report.gate.failures[0]


def test_losses_in_other_units_are_not_ranked_together(retrained, tmp_path):
    from pipeline.report.data.scoreboard import ranked

    report = judged(retrained)
    ranks = [[row.run.path.name for row in rows] for rows in ranked(report.scenarios)]
    assert ranks == [["newest"], ["used"], []]
    page = render(retrained, tmp_path / "out", [NEWEST])["report.md"]
    assert "other test data or units of the loss" in page
    assert "Its lead" not in page


@pytest.mark.parametrize(
    "damage",
    [
        lambda text, facts: (text.replace("1.jpg,", "1.jpg,nan,", 1), facts),
        lambda text, facts: (re.sub(r"1\.jpg,\d\.0", "1.jpg,nan", text, count=1), facts),
        lambda text, facts: (text, facts | {"labels": facts["labels"][:1]}),
        lambda text, facts: (text.replace("round", "red"), facts | {"label_names": ["red", "red"]}),
        lambda text, facts: (text.replace("actual red", "red"), facts),
    ],
    ids=["columns", "nan", "labels", "names", "header"],
)
def test_a_damaged_table_costs_the_comparison_and_not_the_report(make_run, damage):
    folders, actual = [], np.eye(2)[[0, 1] * 20]
    for name, day in (("used", 1), ("newest", 3)):
        about = {"fingerprint": (CHAMPION, NEWEST)[day == 3], "problem": "multi_label", "content_digests": DIGESTS}
        folder = make_run(name, finished_at=f"2026-03-{day:02d}T10:00:00+00:00", **about)
        folders.append(write_values(folder, actual * 0.5 + 0.2, actual, MULTI_LABEL))
    assert judged(folders).gate.passed
    table, evaluation = folder / "test_predictions.csv", folder / "evaluation.json"
    text, facts = damage(table.read_text(), json.loads(evaluation.read_text()))
    table.write_text(text)
    evaluation.write_text(json.dumps(facts))
    (failure,) = judged(folders).gate.failures
    assert "was not compared with the run in use, because " in failure


def test_two_runs_with_the_same_losses_have_an_interval_without_width(make_run):
    actual, folders = np.eye(2)[[0, 1] * 20], []
    for name, day in (("used", 1), ("newest", 3)):
        about = {"fingerprint": (CHAMPION, NEWEST)[day == 3], "problem": "regression", "content_digests": DIGESTS}
        folder = make_run(name, finished_at=f"2026-03-{day:02d}T10:00:00+00:00", **about)
        folders.append(write_values(folder, actual * 0.5, actual, REGRESSION))
    assert judged(folders).comparison.interval == [0, 0]


@pytest.mark.parametrize("by", ["group", "key"])
def test_the_intervals_of_numbers_of_grouped_images_are_called_too_narrow(make_run, tmp_path, by):
    division = {"by": by, "test_share": 0.2, "validation_share": None}
    folder = make_run(problem="regression", fingerprint=NEWEST, division=division)
    write_values(folder, np.eye(2), np.eye(2), REGRESSION)
    page = render([folder], tmp_path / "out", [NEWEST])["report.md"]
    assert "They are too narrow for few images or a few large errors." in page
    assert ("of a group depend on each other, so the intervals are too narrow." in page) == (by == "group")


def compared_losses(make_run, before, after, examples=12):
    """The report of two runs on these examples, one of whose predictions has these values."""
    folders = []
    for name, day, first in (("used", 1, before), ("newest", 3, after)):
        about = {"fingerprint": (CHAMPION, NEWEST)[day == 3], "problem": "regression", "content_digests": DIGESTS}
        folder = make_run(name, finished_at=f"2026-03-{day:02d}T10:00:00+00:00", **about)
        predicted = np.full((examples, 2), 0.5)
        predicted[0, 0] = first
        folders.append(write_values(folder, predicted, np.zeros((examples, 2)), REGRESSION))
    return judged(folders)


@pytest.mark.parametrize(("after", "p_value"), [(0.9, 0.5), (0.1, 1.0)])
def test_losses_of_a_single_example_are_compared(make_run, after, p_value):
    report = compared_losses(make_run, 0.5, after, examples=1)
    assert report.comparison.total.p_value == p_value
    assert report.gate.passed


def test_a_diverged_run_whose_file_has_the_mean_in_place_of_nan_is_worse(retrained):
    file = retrained[1] / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"test_loss": None}))
    write_values(retrained[1], np.arange(80.0).reshape(40, 2), np.arange(80.0).reshape(40, 2), REGRESSION)
    failures = judged(retrained).gate.failures
    assert "its test loss is not finite" in failures[0]
    assert "One of them is not finite. The newest run is worse (p = 0)." in failures[1]


@pytest.mark.parametrize("diverged", [{"used"}, {"newest"}, {"used", "newest"}], ids=["used", "newest", "both"])
def test_a_diverged_classifier_is_worse_although_it_is_more_often_right(runs, diverged):
    """Its file has the first label for every example, which may be the most frequent one."""
    folders = runs(*(set() if name in diverged else set(range(45)) for name in ("used", "newest")))
    for folder in folders:
        if folder.name in diverged:
            file = folder / "run.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"test_loss": None}))
    report = judged(folders)
    assert report.gate.passed == (diverged == {"used"})
    sentence = {1: "One of them is not finite. ", 2: "because neither has a finite loss"}[len(diverged)]
    assert sentence in str(report.comparison)
    assert ("The newest run is worse (p = 0)" in str(report.comparison)) == (diverged == {"newest"})
    # The labels of replaced predictions say nothing.
    assert not report.comparison.labels


@pytest.mark.parametrize("unusable", [float("nan"), 1e200], ids=["nan", "infinite"])
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_a_run_with_a_loss_that_is_not_finite_is_worse_than_one_with_a_finite_loss(make_run, unusable):
    worse = compared_losses(lambda name, **about: make_run(f"a/{name}", **about), 0.5, unusable)
    (failure,) = worse.gate.failures
    assert "One of them is not finite. The newest run is worse (p = 0)." in failure
    better = compared_losses(lambda name, **about: make_run(f"b/{name}", **about), unusable, 0.5)
    assert better.gate.passed
    assert "is –. That of the newest run is 0.0625. One of them is not finite." in str(better.comparison)
    assert "There is no evidence that the newest run is worse (p = 1)." in str(better.comparison)
    assert json.loads(better.to_json())["comparison"]["total"]["before"] is None
    neither = compared_losses(lambda name, **about: make_run(f"c/{name}", **about), unusable, unusable)
    assert "because neither has a finite loss." in neither.gate.failures[0]
