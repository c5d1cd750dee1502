"""Changes compared with their noise: accuracy, and throughput where the machine was as fast."""

import json
import statistics

import numpy as np
import pytest
from report_history_entries import DIGESTS, change_of, entry
from report_runs import RUN, SKIPPED, render


def setup_module() -> None:
    global build_report, describe_change, compare_metrics, judge_change
    from pipeline.report import build_report
    from pipeline.report.data.history import compare_metrics, describe_change, judge_change


def test_the_first_of_its_kind_is_compared_with_nothing():
    change = change_of([entry(1, 0.7)], 1)
    assert (change.since, change.test_accuracy.change) == (None, None)
    assert judge_change(change.test_accuracy) == "new"


def test_a_change_before_the_noise_is_known_is_no_verdict():
    change = change_of([entry(1, 0.7), entry(2, 0.71)], 2)
    assert change.test_accuracy.change == pytest.approx(0.01)
    assert judge_change(change.test_accuracy) == "unknown"
    assert judge_change(change_of([entry(1, 0.7), entry(2, 0.7)], 2).test_accuracy) == "noise"


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.715, "noise"), (0.75, "better"), (0.65, "worse")])
def test_a_change_is_compared_with_the_spread_of_earlier_runs(accuracy, verdict):
    past = [0.70, 0.71, 0.69, 0.702]
    entries = [entry(n, value) for n, value in enumerate([*past, accuracy], start=1)]
    figure = change_of(entries, 5).test_accuracy
    # One run against one: each has the spread of all.
    assert figure.deviation == pytest.approx(statistics.stdev(past) * 2**0.5)
    assert figure.baseline == 0.702
    assert judge_change(figure) == verdict


def test_earlier_runs_that_came_out_alike_are_one_draw():
    entries = [entry(n, value) for n, value in enumerate([0.7, 0.7, 0.7, 0.701, 0.703], start=1)]
    figure = change_of(entries, 5).test_accuracy
    assert figure.deviation == pytest.approx(statistics.stdev([0.7, 0.701]) * 2**0.5)
    assert judge_change(figure) == "noise"


@pytest.mark.parametrize(
    ("before", "examples", "sampling_error"),
    # By the standard error of a share; that of all examples right is of about one that is wrong.
    [([0.72] * 20, 10_000, 0.00449), ([0.72, 0.7201] * 10, 10_000, 0.00449), ([0.72] * 3, 100, 0.0447),
     ([1.0] * 3, 100, 0.0098)],
)  # fmt: skip
def test_the_noise_of_accuracy_is_at_least_the_sampling_error_of_the_test_split(before, examples, sampling_error):
    now = before[-1] - sampling_error
    entries = [entry(n, value, test_examples=examples) for n, value in enumerate([*before, now], start=1)]
    figure = change_of(entries, len(entries)).test_accuracy
    assert figure.deviation == pytest.approx(sampling_error * 2**0.5, rel=0.03)
    assert judge_change(figure) == "noise"
    of_earlier_records = [one.model_copy(update={"test_examples": None}) for one in entries[:-1]] + entries[-1:]
    assert change_of(of_earlier_records, len(entries)).test_accuracy == figure, "it is that of the same data"


def test_a_texts_characters_hang_together_so_that_five_count_as_one_in_the_noise_of_its_accuracy():
    text = {"problem": "next_token", "test_examples": 111_500, "test_loss": 1.5}
    entries = [entry(n, value, **text) for n, value in enumerate([0.55] * 4 + [0.5459], start=1)]
    figure = change_of(entries, 5).test_accuracy
    # The binomial's 0.149 points times √5, of one run against one. Of 0.41 points it would have said 1.9 σ and more.
    assert figure.deviation == pytest.approx(0.00149 * 5**0.5 * 2**0.5, rel=0.01)
    assert judge_change(figure) == "noise"
    assert judge_change(change_of([*entries[:-1], entry(5, 0.5, **text)], 5).test_accuracy) == "worse"


def series_of_runs(draws, *, chance, deviation, examples=10_000):
    """Accuracies run after run: at some the code's change draws anew, at the others it changes nothing."""
    found, now = [], None
    for changed, noise in draws:
        now = now if now is not None and changed >= chance else round((0.72 + deviation * noise) * examples) / examples
        found.append(now)
    return found


# In units of the sampling error: 0.0045.
@pytest.mark.parametrize("spread", [0.5, 1, 2, 3])
@pytest.mark.parametrize("chance", [0.1, 0.3, 1])
def test_of_a_series_of_runs_that_are_alike_at_most_1_in_20_is_called_a_change(spread, chance):
    generator, alarms, total = np.random.default_rng(0), 0, 0
    for earlier in (3, 5, 10, 20):
        for _ in range(100):
            draws = zip(generator.random(earlier + 1), generator.standard_normal(earlier + 1), strict=True)
            *past, now = series_of_runs(draws, chance=chance, deviation=0.0045 * spread)
            figure = compare_metrics([now], past[-1:], [past], min_noise=0.0045)
            alarms, total = alarms + (judge_change(figure) in ("better", "worse")), total + 1
    assert alarms / total <= 0.06


# 5% but for the draws' own spread; where the last run is among those the noise is estimated from, less.
@pytest.mark.parametrize("number", [3, 5, 10])
@pytest.mark.parametrize("last", [slice(None), slice(-1, None)], ids=["seeds of one code", "runs of other code"])
def test_of_runs_that_come_out_alike_at_most_1_in_20_is_called_a_change(number, last):
    draws = np.random.default_rng(number).normal(0.7, 0.01, size=(4_000, number + 1)).tolist()
    found = [
        compare_metrics(now, earlier[last], [earlier]) for *earlier, now in ([*row[:-1], row[-1:]] for row in draws)
    ]
    alarms = sum(judge_change(figure) in ("better", "worse") for figure in found)
    assert 0.02 <= alarms / len(draws) <= 0.06


def seeds_of(accuracies, made_from, first):
    """Runs of one command that differ in their seed, from the first number on."""
    return [
        entry(n, value, made_from=made_from, seed=seed)
        for seed, (n, value) in enumerate(enumerate(accuracies, start=first))
    ]


# Of the first command, two seeds alone say nothing of the noise.
@pytest.mark.parametrize("newest", [3, 5])
def test_of_equal_models_whose_seeds_differ_at_most_1_in_20_commands_is_called_a_change(newest):
    generator, alarms, total = np.random.default_rng(newest), 0, 300
    for _ in range(total):
        draws = generator.normal(0.7, 0.02, newest + 4).tolist()
        entries = seeds_of(draws[:2], "first", 1) + seeds_of(draws[2:4], "second", 3) + seeds_of(draws[4:], "third", 5)
        # Whichever seed is named, all of the command count.
        figure = change_of(entries, 4 + newest).test_accuracy
        assert figure.value == pytest.approx(statistics.mean(draws[4:]))
        assert figure.baseline == pytest.approx(statistics.mean(draws[2:4]))
        alarms += judge_change(figure) in ("better", "worse")
    assert 0.01 <= alarms / total <= 0.06


def test_seeds_of_one_command_are_no_change_of_each_other():
    change = change_of(seeds_of([0.7, 0.8, 0.6, 0.7], "one", 1), 4)
    assert (change.earlier, change.since, judge_change(change.test_accuracy)) == (0, None, "new")


def test_a_command_is_compared_with_other_code_that_ran_between_its_seeds():
    first, between = seeds_of([0.7, 0.8], "one", 1), entry(2, 0.9, made_from="other")
    again = first[1].model_copy(update={"finished_at": "2026-03-03T10:00:00+00:00", "fingerprint": f"{3:064x}"})
    change = change_of([first[0], between, again], 3)
    assert (change.earlier, change.test_accuracy.baseline) == (1, 0.9)
    assert change.test_accuracy.value == pytest.approx(0.75)


@pytest.mark.parametrize("of_one_code", [True, False])
def test_changes_are_compared_as_the_simulation_does(of_one_code):
    past, now = [0.70, 0.71, 0.69, 0.702], 0.72
    entries = [entry(n, value, made_from="same" if of_one_code else None) for n, value in enumerate(past, start=1)]
    figure = change_of([*entries, entry(5, now)], 5).test_accuracy
    assert figure == compare_metrics([now], past if of_one_code else past[-1:], [past])


def rates(numbers, made_from, values, references):
    """Runs of one code, each with its seed, its images/s and the reference measured with it."""
    return [
        entry(n, 0.7, made_from=made_from, seed=n, examples_per_second=rate, reference_flops_per_second=reference)
        for n, rate, reference in zip(numbers, values, references, strict=True)
    ]


def before():
    return rates((1, 2, 3), "before", (1000.0, 1010.0, 990.0), (1e9, 1e9, 1e9))


@pytest.mark.parametrize(
    ("slower", "reference", "verdict"),
    [
        (0.7, 1.0, "worse"),
        (1.4, 1.0, "better"),
        (1.0, 1.0, "noise"),
        # The neighbor's load slows both; and it may come when the run is as fast as before.
        (0.7, 0.7, "other speed"),
        (1.0, 0.7, "other speed"),
        # The noise of the change is 8.2 of 1,000 images/s.
        (0.7, 0.993, "worse"),
        (0.7, 0.991, "other speed"),
        (0.7, None, "no reference"),
    ],
)
def test_throughput_is_judged_only_where_the_machine_was_as_fast(slower, reference, verdict):
    values = [slower * rate for rate in (1000.0, 1010.0, 990.0)]
    references = [None if reference is None else reference * 1e9] * 3
    change = change_of(before() + rates((4, 5, 6), "after", values, references), 4, 5, 6)
    figure = change.examples_per_second
    assert judge_change(figure) == verdict
    is_judged = verdict not in ("other speed", "no reference")
    assert (figure.sigmas is not None) == is_judged
    assert describe_change(figure).startswith("not compared ") != is_judged
    assert figure.change == pytest.approx(1000 * (slower - 1), abs=1e-6)


def test_what_other_code_changed_is_no_noise_of_throughput():
    past = [rates((n,), f"code {n}", (1000.0 + 100 * n,), (1e9,))[0] for n in range(1, 6)]
    change = change_of([*past, *rates((6,), "code 6", (900.0,), (1e9,))], 6)
    assert judge_change(change.examples_per_second) == "unknown"


def test_a_run_repeated_is_another_draw_of_its_throughput():
    (one,) = rates((1,), "before", (1000.0,), (1e9,))
    again = [
        one.model_copy(update={"finished_at": f"2026-03-01T1{hour}:00:00+00:00", "examples_per_second": rate})
        for hour, rate in ((1, 1010.0), (2, 990.0))
    ]
    change = change_of([one, *again, *rates((4,), "after", (700.0,), (1e9,))], 4)
    assert judge_change(change.examples_per_second) == "worse"
    assert judge_change(change.test_accuracy) == "noise"


def test_a_change_is_compared_with_the_spread_over_seeds_where_there_is_one():
    before = [entry(n, value, made_from="before", seed=n) for n, value in ((1, 0.70), (2, 0.72), (3, 0.71))]
    after = [entry(n, value, made_from="after", seed=n) for n, value in ((4, 0.73), (5, 0.75), (6, 0.74))]
    change = change_of(before + after, 4, 5, 6)
    figure = change.test_accuracy
    assert change.earlier == 3
    assert (figure.value, figure.baseline) == (pytest.approx(0.74), pytest.approx(0.71))
    assert figure.deviation == pytest.approx(0.01 * (1 / 3 + 1 / 3) ** 0.5)
    assert judge_change(figure) == "better"


def test_a_run_repeated_under_its_fingerprint_is_no_second_draw():
    again = [entry(1, 0.7), entry(1, 0.7, finished_at="2026-03-01T11:00:00+00:00")]
    change = change_of([*again, entry(1, 0.7, finished_at="2026-03-01T12:00:00+00:00"), entry(2, 0.8)], 2)
    assert judge_change(change.test_accuracy) == "unknown"


def test_a_run_that_diverged_has_no_change_and_stops_nothing(make_run, tmp_path):
    folder = make_run(content_digests=DIGESTS, test_accuracy=None, train_seconds=None)
    files = render([folder], tmp_path / "out", past=[entry(1, 0.7)])
    change = json.loads(files["report.json"])["changes"][0]["test_accuracy"]
    assert (change["value"], change["change"]) == (None, None)


def test_a_skipped_run_is_compared_with_nothing_whatever_ran_under_its_fingerprint(make_run, tmp_path):
    past = [entry(n, 0.7 + n / 100, fingerprint=RUN["fingerprint"]) for n in (1, 2)]
    folder = make_run(curves=[], content_digests=DIGESTS, **(SKIPPED | {"finished_at": "2026-03-09T10:00:00+00:00"}))
    report = build_report([folder], current=[RUN["fingerprint"]], past=past)
    assert report.changes == []
    assert report.history == [past]
    assert "Compared with" not in render([folder], tmp_path / "out", past=past)["report.md"]


def test_a_run_is_compared_as_itself_not_as_a_later_one_of_its_fingerprint(make_run):
    past = [entry(1, 0.7), entry(9, 0.9, fingerprint=RUN["fingerprint"])]
    folder = make_run(content_digests=DIGESTS, finished_at="2026-03-05T10:00:00+00:00")
    (change,) = build_report([folder], current=[RUN["fingerprint"]], past=past).changes
    assert change.test_accuracy.value == RUN["test_accuracy"]
