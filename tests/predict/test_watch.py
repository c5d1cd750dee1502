"""Counts of predictions, and warnings when they leave what the test split showed."""

import json
import multiprocessing
import re
import threading
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from report_runs import RUN, write_predictions, write_run
from scheduled import TODAY, noon  # noqa: F401
from scipy import stats

from pipeline.artifacts.manifest import write_manifest
from pipeline.predict import Job
from pipeline.predict.watch import LEVEL, Watch, check_recent, p_values, reference
from pipeline.runs.record import read_record

LABELS = ("cat", "dog", "ship")

# The date must not change while the tests run.
pytestmark = pytest.mark.usefixtures("noon")


@pytest.fixture
def run(tmp_path):
    """A run whose test split has 30 predictions of each label with a confidence of 0.8."""
    folder = write_run(tmp_path / "runs" / "cnn-aa11")
    (folder / "evaluation.json").write_text(json.dumps({"label_names": LABELS}))
    return write_predictions(folder, wrong=())


def outputs(count, label=None, confidence=0.8):
    """Probabilities of predictions of one label, or of each in turn."""
    chosen = np.arange(count) % 3 if label is None else np.full(count, label)
    return np.where(np.eye(3)[chosen] == 1, confidence, (1 - confidence) / 2).astype(np.float32)


def day(run, name=f"{TODAY}"):
    return json.loads((run.parents[1] / "watched" / run.name / f"{name}.json").read_text())["counts"]


def watched(run, predictions, sides=(), days_ago=0):
    watch = Watch(Job(str(run), LABELS, is_watched=True))
    watch.add(predictions, sides)
    watch.save()
    if days_ago:
        folder = run.parents[1] / "watched" / run.name
        (folder / f"{TODAY}.json").rename(folder / f"{datetime.now(UTC) - timedelta(days=days_ago):%Y-%m-%d}.json")


def test_labels_confidences_and_sizes_are_counted_without_anything_else(run):
    watched(run, outputs(4, confidence=0.95), sides=[31, 32, 63, 64])
    watched(run, outputs(3, label=2, confidence=0.5), sides=[400, 400, 400])
    sizes = {"16 to 31 pixels": 1, "32 to 63 pixels": 2, "64 to 127 pixels": 1, "256 to 511 pixels": 3}
    labels = {"cat": 2, "dog": 1, "ship": 4}
    assert day(run) == {"label": labels, "confidence": {"90% to 100%": 4, "50% to 60%": 3}, "size": sizes}


def test_outputs_of_a_diverged_model_are_counted(run):
    watched(run, np.full((2, 3), np.nan))
    assert day(run)["confidence"] == {"0% to 10%": 2}


def test_a_problem_without_bins_is_not_counted(run):
    watch = Watch(Job(str(run), LABELS, "next_token", is_watched=True))
    watch.add(outputs(3))
    watch.save()
    assert not (run.parents[1] / "watched").exists()


def _save_often(run):
    for _ in range(20):
        watched(run, outputs(3))


def test_processes_and_threads_at_the_same_time_lose_no_counts(run):
    processes = [multiprocessing.get_context("fork").Process(target=_save_often, args=(run,)) for _ in range(3)]
    threads = [threading.Thread(target=_save_often, args=(run,)) for _ in range(3)]
    for one in (*processes, *threads):
        one.start()
    for one in (*processes, *threads):
        one.join(300)
    assert day(run)["label"] == dict.fromkeys(LABELS, 6 * 20)


def test_a_folder_that_cannot_be_written_ends_nothing(run, caplog):
    (run.parents[1] / "watched").write_text("a file")
    watched(run, outputs(3))
    assert "The counts of these predictions were not recorded." in caplog.text


def test_a_damaged_day_is_left_out(run, caplog):
    watched(run, outputs(300, label=1), days_ago=1)
    path = next((run.parents[1] / "watched").glob("*/*.json"))
    path.write_text('{"counts": {"label": {"dog": -1}}}')
    assert check_recent(run.parents[1], "cifar10") == []
    assert "Its counts are left out." in caplog.text


def test_recent_predictions_that_differ_from_the_test_split_are_described(run):
    watched(run, outputs(300, label=1), days_ago=3)
    (found,) = check_recent(run.parents[1], "cifar10")
    assert found.startswith("cnn-aa11: predictions of the last 7 days differ from the test split in label (p = ")
    assert "'dog' has 100.0% of them, and 33.3% of the test split." in found


@pytest.mark.parametrize(
    ("count", "label", "days_ago", "experiment"),
    [(300, None, 0, "cifar10"), (99, 1, 0, "cifar10"), (300, 1, 7, "cifar10"), (300, 1, 0, "flowers")],
    ids=["equal", "few", "old", "other experiment"],
)
def test_other_predictions_are_not_described(run, count, label, days_ago, experiment):
    watched(run, outputs(count, label), days_ago=days_ago)
    assert check_recent(run.parents[1], experiment) == []


def test_confidences_that_differ_are_described(run):
    watched(run, outputs(300, confidence=0.6))
    (found,) = check_recent(run.parents[1], "cifar10")
    assert "differ from the test split in confidence" in found


def test_sizes_are_compared_with_those_of_the_source_of_the_records(run):
    identity = {"settings": {}}
    records = run.parents[1] / "records" / "a-1"
    records.mkdir(parents=True)
    details = {"source": {"side_counts": {"7": 60, "8": 60}}}
    fingerprint = write_manifest(records, stage="Records", identity=identity, details=details)["fingerprint"]
    (run / "run.json").write_text(json.dumps(RUN | {"records_fingerprint": fingerprint}))
    watched(run, outputs(120), sides=[128, 511] * 60)
    assert check_recent(run.parents[1], "cifar10") == []
    watched(run, outputs(120), sides=[64] * 120)
    (found,) = check_recent(run.parents[1], "cifar10")
    assert "differ from the test split in size" in found


def test_a_run_without_predictions_of_its_test_split_is_named(run, caplog):
    (run / "test_predictions.csv").unlink()
    watched(run, outputs(300))
    assert check_recent(run.parents[1], "cifar10") == []
    assert re.search(r"The predictions of cnn-aa11 are not compared\. .*test_predictions\.csv", caplog.text)


def test_each_of_several_labels_is_compared(tmp_path):
    run = write_run(tmp_path / "runs" / "cnn-aa11", problem="multi_label")
    facts = {"label_names": ["a", "b"], "labels": [{"threshold": 0.3}, {"threshold": 0.6}]}
    (run / "evaluation.json").write_text(json.dumps(facts))
    rows = ["key,actual a,actual b,predicted a,predicted b", *["x,1,0,0.4,0.5"] * 60, *["x,1,0,0.2,0.7"] * 60]
    (run / "test_predictions.csv").write_text("\n".join(rows))
    half = {"yes": 60, "no": 60}
    assert reference(tmp_path, run, read_record(run)) == {"label a": half, "label b": half}
    watch = Watch(Job(str(run), ("a", "b"), "multi_label", is_watched=True))
    watch.add(np.array([[0.4, 0.7], [0.2, 0.7]] * 60))
    watch.save()
    assert day(run) == {"label a": half, "label b": {"yes": 120}}
    (found,) = check_recent(tmp_path, "cifar10")
    assert "differ from the test split in label b" in found


def test_numbers_are_compared_by_the_deciles_of_the_test_split(tmp_path):
    run = write_run(tmp_path / "runs" / "cnn-aa11", problem="regression")
    (run / "evaluation.json").write_text(json.dumps({"label_names": ["price"]}))
    rows = ["key,actual price,predicted price", *(f"x,0,{number}" for number in range(100))]
    (run / "test_predictions.csv").write_text("\n".join(rows))
    parts = {f"part {number} of 10": 10 for number in range(1, 11)}
    assert reference(tmp_path, run, read_record(run)) == {"value price": parts}
    watch = Watch(Job(str(run), ("price",), "regression", is_watched=True))
    watch.add(np.arange(-10, 110, dtype=np.float32)[:, None])
    watch.save()
    assert day(run) == {"value price": parts | {"part 1 of 10": 20, "part 10 of 10": 20}}


SHARES = {
    "even labels": np.full(10, 0.1),
    "rare labels": np.arange(1, 101.0) ** -1.5 / (np.arange(1, 101.0) ** -1.5).sum(),
}
CONFIDENCES = np.array([0, 0.01, 0.02, 0.04, 0.05, 0.06, 0.08, 0.1, 0.14, 0.5])


def warned(rng, recent, expected, shares, changed):
    """The share of simulated checks with a warning. Labels have these shares, and those when they have changed."""
    checks = 1_000

    def draws(count, shares):
        sizes = {"label": shares, "confidence": CONFIDENCES}
        return {name: rng.multinomial(count, share, checks).tolist() for name, share in sizes.items()}

    now, before = draws(recent, changed), draws(expected, shares)
    warnings = 0
    for check in range(checks):
        pair = ({name: dict(enumerate(rows[check])) for name, rows in drawn.items()} for drawn in (now, before))
        found = p_values(*pair)
        warnings += min(found.values()) < LEVEL / len(found)
    return warnings / checks


@pytest.mark.parametrize("labels", SHARES)
@pytest.mark.parametrize(("recent", "expected"), [(100, 1_000), (1_000, 1_000)])
def test_at_most_one_check_in_a_hundred_warns_if_nothing_has_changed(rng, recent, expected, labels):
    # 1,000 checks of this level have at most 19 warnings in 99.8% of all cases.
    limit = stats.binom.ppf(0.998, 1_000, LEVEL) / 1_000
    assert warned(rng, recent, expected, SHARES[labels], SHARES[labels]) <= limit


@pytest.mark.parametrize(("share", "power"), [(0.16, 0.557), (0.2, 0.986)])
def test_a_label_that_became_more_frequent_is_found_as_often_as_the_guide_says(rng, share, power):
    sizes, checks = np.array([500, 5_000]), 20_000
    shares = np.array([share, *[(1 - share) / 9] * 9]), SHARES["even labels"]
    tables = np.stack([rng.multinomial(*of, checks) for of in zip(sizes, shares, strict=True)], axis=1)
    expected = tables.sum(axis=1, keepdims=True) * sizes[:, None] / sizes.sum()
    p_value = stats.chi2.sf(((tables - expected) ** 2 / expected).sum(axis=(1, 2)), 9)
    for (recent, test), each in zip(tables[:200].tolist(), p_value, strict=False):
        pair = ({"label": dict(enumerate(counts))} for counts in (recent, test))
        assert p_values(*pair)["label"] == pytest.approx(each)
    # The confidence has the other half of the level, and warns in 0.5% of all checks.
    found = 1 - (p_value >= LEVEL / 2).mean() * (1 - LEVEL / 2)
    assert found == pytest.approx(power, abs=4 * np.sqrt(power * (1 - power) / checks))


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"labels": [1]}'])
def test_predictions_of_a_run_with_a_damaged_evaluation_are_made_and_not_counted(tmp_path, caplog, content):
    run = write_run(tmp_path / "runs" / "cnn-aa11", problem="multi_label")
    if content is not None:
        (run / "evaluation.json").write_text(content)
    watch = Watch(Job(str(run), ("a", "b"), "multi_label", is_watched=True))
    watch.add(np.zeros((2, 2)))
    watch.save()
    assert not (tmp_path / "watched").exists()
    assert "The predictions of cnn-aa11 are not counted." in caplog.text
