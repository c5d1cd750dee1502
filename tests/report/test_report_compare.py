"""The comparison of the two best or newest rows, its noise, and the data with which the page compares others."""

import json

import numpy as np
import pytest
from report_runs import cells_of, report_of, write_evaluation, write_predictions


def setup_module() -> None:
    global Table, MAX_PROBABILITY, _label_table, compare, compare_data, judge_pair, paired_probability, binomtest
    global findings
    from scipy.stats import binomtest

    from pipeline.report.blocks import Table
    from pipeline.report.sections.compare import (
        MAX_PROBABILITY,
        _label_table,
        compare,
        compare_data,
        judge_pair,
        paired_probability,
    )
    from pipeline.report.sections.summary import findings


DIGESTS = {"train": "1" * 64, "test": "2" * 64}
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture
def compared(make_run):
    """A function that returns the report of runs with the changes given, and with these wrong predictions."""

    def build(*runs, name="photos/{}.jpg"):
        folders = []
        for n, (changes, wrong) in enumerate(runs):
            facts = {"fingerprint": f"{n:x}" * 64, "content_digests": DIGESTS, "test_examples": 90}
            date = {"finished_at": f"2026-03-{n + 1:02d}T10:00:00+00:00"}
            folder = write_evaluation(make_run(f"run{n}", **facts | date | changes))
            folders.append(folder if wrong is None else write_predictions(folder, wrong, name=name))
        return report_of(folders, ["0" * 64], published=[])

    return build


def tables(report) -> list[list[dict]]:
    return [cells_of(block) for block in next(compare(report)).blocks if isinstance(block, Table) and block]


OTHER_DIGESTS = DIGESTS | {"test": "3" * 64}


def test_the_best_row_is_compared_with_the_next_one_on_its_data(compared):
    report = compared(
        ({"global_batch_size": 32, "content_digests": OTHER_DIGESTS, "test_accuracy": 0.99}, None),
        ({"global_batch_size": 64, "test_accuracy": 0.9}, None),
        ({"global_batch_size": 128, "test_accuracy": 0.8, "content_digests": None}, None),
        ({"global_batch_size": 256, "test_accuracy": 0.7}, None),
        ({"global_batch_size": 512, "test_accuracy": 0.6}, None),
    )
    assert tables(report)[0] == [{"setting": "batch", "A": "64", "B": "256"}]
    assert next(compare(report)).blocks[0].text == "The best row, and the next one with the same test data."


def test_of_rows_with_other_data_than_the_best_the_two_newest_are_compared(compared):
    report = compared(
        ({"global_batch_size": 64, "content_digests": OTHER_DIGESTS}, None),
        ({"global_batch_size": 128, "content_digests": OTHER_DIGESTS, "test_accuracy": 0.75}, None),
        ({"global_batch_size": 256}, None),
    )
    note = "The two newest rows with the same test data."
    assert next(compare(report)).blocks[0].text == note
    settings, metrics, *_ = tables(report)
    assert settings == [{"setting": "batch", "A": "64", "B": "128"}]
    assert metrics[0] == {
        "metric": "test accuracy", "A": "73.80%", "B": "75.00%", "B − A": "+1.20 points",
        "difference": "unknown, too few runs",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "ending"),
    [
        (set(range(25)), "Its lead of 20.00 points over row 2 is more than noise."),
        ({*range(10, 20), 20}, "Its lead of 20.00 points over row 2 is within noise."),
        (None, "Its lead of 20.00 points over row 2 may be noise, as each row has too few runs."),
    ],
)
def test_the_head_tells_whether_the_lead_of_the_best_row_is_more_than_noise(compared, wrong, ending):
    best = {"model": "best_cnn", "test_accuracy": 0.938}
    (sentence,) = findings(compared((best, set(range(10))), ({}, wrong)))
    assert sentence == f"Row 1 of the scoreboard, best_cnn / onecycle, has the best test accuracy, 93.80%. {ending}"


def test_the_head_names_no_lead_over_rows_with_other_test_data(compared):
    only = "Only one row of the scoreboard is comparable, so there is no second one to compare it with."
    assert findings(compared(({}, None), ({"content_digests": OTHER_DIGESTS}, None))) == [only]


def test_the_head_names_no_missing_row_beside_a_first_run(compared):
    assert findings(compared(({}, None))) == []


def test_rows_without_common_test_data_are_not_compared(compared):
    report = compared(({}, None), ({"content_digests": OTHER_DIGESTS}, None))
    assert list(compare(report)) == []
    assert compare_data(report) == ""


def test_runs_are_compared_on_the_examples_that_only_one_of_them_gets_right(compared):
    report = compared(({"global_batch_size": 64, "test_accuracy": 0.74}, range(30)), ({}, range(20, 33)))
    *_, examples = tables(report)
    assert examples[0]["right"] == "A, not B"
    assert examples[0]["names"] == "photos/30.jpg (cat), photos/31.jpg (dog), photos/32.jpg (ship)"
    assert examples[1]["examples"] == "20"
    # Of 23 examples, 3 and 20.
    metrics = next(rows for rows in tables(report) if "metric" in rows[0])
    assert metrics[0]["difference"] == "more than noise"
    assert any("Another seed may" in getattr(block, "text", "") for block in next(compare(report)).blocks)


def test_the_labels_that_differ_most_are_compared():
    table = _label_table({"cat": 0.5, "dog": 0.5, "ship": 0.9}, {"cat": 0.75, "dog": 0.0, "ship": 0.9})
    assert [[cell.text for cell in row] for row in table.visible()[1]] == [
        ["dog", "50.0%", "0.0%", "−50.00 points"],
        ["cat", "50.0%", "75.0%", "+25.00 points"],
    ]


def test_predictions_for_other_examples_are_not_compared(compared, make_run):
    report = compared(({"global_batch_size": 64}, range(30)), ({}, range(3)))
    other = report.predictions_of(report.runs[0]).keys
    other[0] = "another.jpg"
    assert judge_pair(report, *report.scenarios, "test_accuracy") == "unknown, too few runs"
    assert len(json.loads(compare_data(report))["tests"]) == 2


def test_rows_of_several_seeds_are_compared_by_the_deviation_between_seeds(compared):
    accuracies = {64: (0.70, 0.71, 0.72), 128: (0.71, 0.72, 0.73), 256: (0.90, 0.91, 0.92)}
    runs = [
        ({"global_batch_size": size, "seed": seed, "test_accuracy": accuracy, "test_examples": 10_000}, range(5))
        for size, values in accuracies.items()
        for seed, accuracy in enumerate(values)
    ]
    report = compared(*runs)
    rows = {row.run.global_batch_size: row for row in report.scenarios}
    assert judge_pair(report, rows[64], rows[128], "test_accuracy") == "within noise"
    assert judge_pair(report, rows[64], rows[256], "test_accuracy") == "more than noise"


def test_the_probability_is_that_of_the_exact_test():
    for first, second in ((0, 0), (1, 5), (9, 2), (40, 20), (3, 3)):
        expected = binomtest(first, first + second).pvalue if first + second else 1
        assert paired_probability(first, second) == pytest.approx(expected)


@pytest.mark.parametrize("examples", [50, 1_000, 10_000])
@pytest.mark.parametrize("accuracy", [0.6, 0.95])
def test_at_most_1_in_20_of_equal_models_are_called_different(examples, accuracy):
    generator = np.random.default_rng(examples)
    # Some examples are hard for both models.
    hardness = generator.random((400, 1, examples)) < (1 - accuracy) / 2
    right = (generator.random((400, 2, examples)) < accuracy) & ~hardness
    only = [((a & ~b).sum(), (b & ~a).sum()) for a, b in right]
    alarms = sum(paired_probability(int(first), int(second)) <= MAX_PROBABILITY for first, second in only)
    assert alarms / len(only) <= 0.06


def test_the_data_of_the_page_contain_no_tag_and_the_examples_on_which_rows_differ(compared):
    report = compared(({"model": HOSTILE}, range(3)), ({}, range(2, 5)), ({"epochs": 9}, None), name=HOSTILE + "{}")
    text = compare_data(report)
    assert "<" not in text
    data = json.loads(text)
    assert [row["test"] for row in data["rows"]] == [None, 0, 0]
    assert data["rows"][2]["settings"]["model"].startswith("</script>")
    assert [key[-1] for key in data["tests"][0]["keys"]] == ["0", "1", "3", "4"]
    assert "settings" in data["rows"][0]
    assert set(data["rows"][0]["settings"]) == {"model", "epochs"}, "only settings that differ"


def test_the_oldest_rows_are_left_out_of_the_data_of_many_rows(compared, monkeypatch):
    report = compared(*(({"global_batch_size": 64 << n}, None) for n in range(4)))
    monkeypatch.setattr("pipeline.report.sections.compare.MAX_ROWS", 3)
    rows = json.loads(compare_data(report))["rows"]
    assert [row["id"] for row in rows] == ["run-" + digit * 12 for digit in "321"]
