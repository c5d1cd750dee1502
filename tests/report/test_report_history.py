"""History: the log of every run reported, changes held against their noise, and the gate."""

import json
import statistics

import numpy as np
import pytest
from report_runs import MISMATCH, NAMES, RUN, SKIPPED, render

from pipeline.artefacts.manifest import write_manifest
from pipeline.report import Gate, append_history, build_report, entries_of, format_table, read_history
from pipeline.report.facts.changes import changes, compare_figures, judge_change
from pipeline.report.facts.history import trends
from pipeline.runs.record import RunRecord

DIGESTS = {"train": "1" * 64, "test": "2" * 64}


def entry(number, accuracy, *, made_from=None, **more):
    """An entry of the history: the n-th run, a day after the one before it."""
    name = f"{number:064x}"
    facts = {
        "fingerprint": name,
        "made_from": made_from or name,
        "content_digests": DIGESTS,
        "finished_at": f"2026-03-{number:02d}T10:00:00+00:00",
        "val_accuracy": accuracy,
        "status": "finished",
    }
    origin = {"made_from": facts.pop("made_from"), "code": None}
    return entries_of([RunRecord(**{**RUN, **facts, **more}).model_dump(mode="json") | origin])[0]


def change_of(entries, *current):
    names = {f"{number:064x}" for number in current}
    asked = {(one["fingerprint"], one["finished_at"]) for one in entries if one["fingerprint"] in names}
    (change,) = changes(entries, asked)
    return change


def test_the_log_keeps_every_run_once_in_the_order_they_were_reported(tmp_path):
    log = tmp_path / "history.jsonl"
    assert read_history(log) == []
    append_history(log, [entry(1, 0.7)], past=read_history(log))
    append_history(log, [entry(1, 0.7), entry(2, 0.8)], past=read_history(log))
    assert [one["val_accuracy"] for one in read_history(log)] == [0.7, 0.8]
    assert len(log.read_text().splitlines()) == 2


def test_the_log_is_only_added_to(tmp_path):
    log = tmp_path / "history.jsonl"
    append_history(log, [entry(1, 0.7)], past=read_history(log))
    before = log.read_bytes()
    append_history(log, [entry(2, 0.8)], past=read_history(log))
    assert log.read_bytes().startswith(before)
    untouched = log.stat().st_mtime_ns
    append_history(log, [entry(2, 0.8)], past=read_history(log))
    assert log.stat().st_mtime_ns == untouched


@pytest.mark.parametrize("torn", ['{"fingerprint": "ab', "[]", '{"fingerprint": 3}', "\x00\xff"])
def test_a_torn_line_costs_no_other_line(tmp_path, caplog, torn):
    log = tmp_path / "history.jsonl"
    append_history(log, [entry(1, 0.7)], past=read_history(log))
    with log.open("a", encoding="latin-1") as file:
        file.write(torn)
    append_history(log, [entry(2, 0.8)], past=read_history(log))
    assert [one["val_accuracy"] for one in read_history(log)] == [0.7, 0.8]
    assert "history.jsonl: line 2" in caplog.text


def test_a_run_whose_folder_is_gone_stays_in_the_history(make_run, tmp_path):
    report = build_report([make_run(content_digests=DIGESTS)], current=[], past=[entry(1, 0.7)])
    (group,) = report["history"]
    assert len(report["runs"]) == 1
    assert sorted(point["val_accuracy"] for point in group["points"]) == [0.7, RUN["val_accuracy"]]


def test_only_comparable_runs_share_a_group():
    others = [entry(n, 0.7, **{name: value}) for n, (name, value) in enumerate(
        [("global_batch_size", 256), ("epochs", 9), ("precision", "float32"), ("granted_cores", 4), ("recipe", "x"),
         ("content_digests", {"train": "3" * 64, "test": "4" * 64})], start=2)]  # fmt: skip
    groups = trends([entry(1, 0.7), *others], current=[f"{1:064x}"])
    assert len(groups) == 7
    assert [group["is_current"] for group in groups] == [True] + [False] * 6
    assert change_of([entry(1, 0.7), *others], 1)["earlier"] == 0


def test_runs_of_two_hosts_of_one_kind_are_comparable():
    change = change_of([entry(n, 0.7 + n / 1000, hostname=f"pod-{n}") for n in range(1, 6)], 5)
    assert change["earlier"] == 4
    assert judge_change(change["val_accuracy"]) == "noise"


OLD_LINE = {
    **{name: RUN[name] for name in (
        "seed", "dataset", "dataset_verified", "device_verified", "model", "recipe", "epochs", "global_batch_size",
        "precision", "effective_device", "device_name", "num_replicas", "hostname", "train_seconds",
        "examples_per_second", "finished_at")},
    "fingerprint": f"{1:064x}", "made_from": "old", "content_digests": DIGESTS, "val_accuracy": 0.7,
}  # fmt: skip


def test_a_line_of_an_earlier_version_is_read_and_what_it_leaves_out_is_unknown(tmp_path):
    log = tmp_path / "history.jsonl"
    log.write_text(json.dumps(OLD_LINE) + "\n")
    (old,) = read_history(log)
    assert old["val_accuracy"] == 0.7
    assert (old["replicas"], old["scale_learning_rate"], old["granted_cores"]) == (None, None, None)
    assert [len(group["points"]) for group in trends([old, entry(2, 0.7)], [])] == [1, 1], "it may not be comparable"


def test_a_line_of_an_earlier_version_is_replaced_by_what_the_run_itself_says(tmp_path):
    log = tmp_path / "history.jsonl"
    log.write_text(json.dumps(OLD_LINE) + "\n")
    now = entry(1, 0.7, finished_at=OLD_LINE["finished_at"])
    for _ in range(2):
        append_history(log, [now], past=read_history(log))
    assert read_history(log) == [now]
    assert len(log.read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["epochs", "model", "device_verified", "finished_at"])
def test_a_line_that_lacks_what_every_version_wrote_is_left_out(tmp_path, caplog, name):
    log = tmp_path / "history.jsonl"
    log.write_text(json.dumps({key: value for key, value in OLD_LINE.items() if key != name}) + "\n")
    assert read_history(log) == []
    assert f'line 1 lacks "{name}"' in caplog.text


def test_the_first_of_its_kind_is_compared_with_nothing():
    change = change_of([entry(1, 0.7)], 1)
    assert (change["since"], change["val_accuracy"]["change"]) == (None, None)
    assert judge_change(change["val_accuracy"]) == "new"


def test_a_change_before_the_noise_is_known_is_no_verdict():
    change = change_of([entry(1, 0.7), entry(2, 0.71)], 2)
    assert change["val_accuracy"]["change"] == pytest.approx(0.01)
    assert judge_change(change["val_accuracy"]) == "unknown"
    assert judge_change(change_of([entry(1, 0.7), entry(2, 0.7)], 2)["val_accuracy"]) == "noise"


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.715, "noise"), (0.75, "better"), (0.65, "worse")])
def test_a_change_is_held_against_the_spread_of_earlier_runs(accuracy, verdict):
    past = [0.70, 0.71, 0.69, 0.702]
    entries = [entry(n, value) for n, value in enumerate([*past, accuracy], start=1)]
    figure = change_of(entries, 5)["val_accuracy"]
    # One run against one: each has the spread of all.
    assert figure["deviation"] == pytest.approx(statistics.stdev(past) * 2**0.5)
    assert figure["baseline"] == 0.702
    assert judge_change(figure) == verdict


def test_earlier_runs_that_came_out_alike_are_one_draw():
    entries = [entry(n, value) for n, value in enumerate([0.7, 0.7, 0.7, 0.701, 0.703], start=1)]
    figure = change_of(entries, 5)["val_accuracy"]
    assert figure["deviation"] == pytest.approx(statistics.stdev([0.7, 0.701]) * 2**0.5)
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
    figure = change_of(entries, len(entries))["val_accuracy"]
    assert figure["deviation"] == pytest.approx(sampling_error * 2**0.5, rel=0.03)
    assert judge_change(figure) == "noise"
    of_earlier_records = [one | {"test_examples": None} for one in entries[:-1]] + entries[-1:]
    assert change_of(of_earlier_records, len(entries))["val_accuracy"] == figure, "it is that of the same data"


def nights(draws, *, chance, deviation, examples=10_000):
    """Accuracies night after night: at some the code's change draws anew, at the others it changes nothing."""
    found, now = [], None
    for changed, noise in draws:
        now = now if now is not None and changed >= chance else round((0.72 + deviation * noise) * examples) / examples
        found.append(now)
    return found


# In units of the sampling error: 0.0045.
@pytest.mark.parametrize("spread", [0.5, 1, 2, 3])
@pytest.mark.parametrize("chance", [0.1, 0.3, 1])
def test_of_nights_that_are_alike_at_most_1_in_20_is_called_a_change(spread, chance):
    generator, alarms, total = np.random.default_rng(0), 0, 0
    for earlier in (3, 5, 10, 20):
        for _ in range(100):
            draws = zip(generator.random(earlier + 1), generator.standard_normal(earlier + 1), strict=True)
            *past, now = nights(draws, chance=chance, deviation=0.0045 * spread)
            figure = compare_figures([now], past[-1:], [past], least=0.0045) | {"obstacle": None}
            alarms, total = alarms + (judge_change(figure) in ("better", "worse")), total + 1
    assert alarms / total <= 0.06


# 5 % but for the draws' own spread; where the last run is among those that tell the noise, less.
@pytest.mark.parametrize("number", [3, 5, 10])
@pytest.mark.parametrize("last", [slice(None), slice(-1, None)], ids=["seeds of one code", "runs of other code"])
def test_of_runs_that_come_out_alike_at_most_1_in_20_is_called_a_change(number, last):
    draws = np.random.default_rng(number).normal(0.7, 0.01, size=(4_000, number + 1)).tolist()
    found = [
        compare_figures(now, earlier[last], [earlier]) for *earlier, now in ([*row[:-1], row[-1:]] for row in draws)
    ]
    alarms = sum(judge_change(figure | {"obstacle": None}) in ("better", "worse") for figure in found)
    assert 0.02 <= alarms / len(draws) <= 0.06


@pytest.mark.parametrize("of_one_code", [True, False])
def test_changes_are_compared_as_the_simulation_does(of_one_code):
    past, now = [0.70, 0.71, 0.69, 0.702], 0.72
    entries = [entry(n, value, made_from="same" if of_one_code else None) for n, value in enumerate(past, start=1)]
    figure = change_of([*entries, entry(5, now)], 5)["val_accuracy"]
    assert figure == compare_figures([now], past if of_one_code else past[-1:], [past]) | {"obstacle": None}


def rates(numbers, made_from, values, references):
    """Runs of one code, each with its seed, its images/s and the reference measured with it."""
    return [
        entry(n, 0.7, made_from=made_from, seed=n, examples_per_second=rate, reference_flops_per_second=reference)
        for n, rate, reference in zip(numbers, values, references, strict=True)
    ]


BEFORE = rates((1, 2, 3), "before", (1000.0, 1010.0, 990.0), (1e9, 1e9, 1e9))


@pytest.mark.parametrize(
    ("slower", "reference", "verdict"),
    [
        (0.7, 1.0, "worse"),
        (1.4, 1.0, "better"),
        (1.0, 1.0, "noise"),
        # The neighbour's load slows both; and it may come when the run is as fast as before.
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
    change = change_of(BEFORE + rates((4, 5, 6), "after", values, references), 4, 5, 6)
    figure = change["examples_per_second"]
    assert judge_change(figure) == verdict
    assert (figure["sigmas"] is None) == (verdict in ("other speed", "no reference"))
    assert figure["change"] == pytest.approx(1000 * (slower - 1), abs=1e-6)


def test_what_other_code_changed_is_no_noise_of_throughput():
    past = [rates((n,), f"code {n}", (1000.0 + 100 * n,), (1e9,))[0] for n in range(1, 6)]
    change = change_of([*past, *rates((6,), "code 6", (900.0,), (1e9,))], 6)
    assert judge_change(change["examples_per_second"]) == "unknown"


def test_a_run_repeated_is_another_draw_of_its_throughput():
    (one,) = rates((1,), "before", (1000.0,), (1e9,))
    again = [
        one | {"finished_at": f"2026-03-01T1{hour}:00:00+00:00", "examples_per_second": rate}
        for hour, rate in ((1, 1010.0), (2, 990.0))
    ]
    change = change_of([one, *again, *rates((4,), "after", (700.0,), (1e9,))], 4)
    assert judge_change(change["examples_per_second"]) == "worse"
    assert judge_change(change["val_accuracy"]) == "noise"


@pytest.mark.parametrize("name", NAMES)
def test_a_throughput_that_is_not_judged_says_so_in_every_rendering(make_run, tmp_path, name):
    past = [one | {"val_accuracy": 0.7} for one in BEFORE]
    slow = {"examples_per_second": 700.0, "reference_flops_per_second": 7e8}
    folder = make_run(content_digests=DIGESTS, finished_at="2026-03-09T10:00:00+00:00", **slow)
    text = render([folder], tmp_path / "out", past=past)[name]
    assert ("other speed" if name == "report.json" else "not judged: the machine's speed differed") in text.replace(
        "&#39;", "'"
    )


def test_a_change_is_held_against_the_spread_over_seeds_where_there_is_one():
    before = [entry(n, value, made_from="before", seed=n) for n, value in ((1, 0.70), (2, 0.72), (3, 0.71))]
    after = [entry(n, value, made_from="after", seed=n) for n, value in ((4, 0.73), (5, 0.75), (6, 0.74))]
    change = change_of(before + after, 4, 5, 6)
    figure = change["val_accuracy"]
    assert change["earlier"] == 3
    assert (figure["value"], figure["baseline"]) == (pytest.approx(0.74), pytest.approx(0.71))
    assert figure["deviation"] == pytest.approx(0.01 * (1 / 3 + 1 / 3) ** 0.5)
    assert judge_change(figure) == "better"


def test_a_run_made_again_is_no_second_draw():
    again = [entry(1, 0.7), {**entry(1, 0.7), "finished_at": "2026-03-01T11:00:00+00:00"}]
    change = change_of([*again, {**entry(1, 0.7), "finished_at": "2026-03-01T12:00:00+00:00"}, entry(2, 0.8)], 2)
    assert judge_change(change["val_accuracy"]) == "unknown"


def test_a_run_that_diverged_has_no_change_and_stops_nothing(make_run, tmp_path):
    folder = make_run(content_digests=DIGESTS, val_accuracy=None, train_seconds=None)
    files = render([folder], tmp_path / "out", past=[entry(1, 0.7)])
    change = json.loads(files["report.json"])["changes"][0]["val_accuracy"]
    assert (change["value"], change["change"]) == (None, None)


def test_a_skipped_run_is_compared_with_nothing_whatever_ran_under_its_fingerprint(make_run, tmp_path):
    past = [entry(n, 0.7 + n / 100, fingerprint=RUN["fingerprint"]) for n in (1, 2)]
    folder = make_run(curves=[], content_digests=DIGESTS, **(SKIPPED | {"finished_at": "2026-03-09T10:00:00+00:00"}))
    report = build_report([folder], current=[RUN["fingerprint"]], past=past)
    assert report["changes"] == []
    assert [group["is_current"] for group in report["history"]] == [False]
    assert "Compared with" not in render([folder], tmp_path / "out", past=past)["report.md"]


def test_a_run_is_compared_as_itself_not_as_a_later_one_of_its_fingerprint(make_run):
    past = [entry(1, 0.7), entry(9, 0.9, fingerprint=RUN["fingerprint"])]
    folder = make_run(content_digests=DIGESTS, finished_at="2026-03-05T10:00:00+00:00")
    (change,) = build_report([folder], current=[RUN["fingerprint"]], past=past)["changes"]
    assert change["val_accuracy"]["value"] == RUN["val_accuracy"]


PAST = [entry(n, 0.70 + n / 1000) for n in range(1, 5)]


@pytest.mark.parametrize(
    ("gate", "accuracy", "failure"),
    [
        (Gate(), 0.1, None),
        (Gate(min_val_accuracy=0.7), 0.7, None),
        (Gate(min_val_accuracy=0.7), 0.69, "69.00 %, demanded are at least 70.00 %"),
        (Gate(min_val_accuracy=0.7), None, "–, demanded are at least 70.00 %"),
        (Gate(max_regression_sigma=3), 0.702, None),
        (Gate(max_regression_sigma=3), 0.9, None),
        (Gate(max_regression_sigma=3), 0.65, "fell from 70.40 % to 65.00 %"),
    ],
)
def test_the_gate_fails_for_what_its_settings_demand(make_run, gate, accuracy, failure):
    folder = make_run(content_digests=DIGESTS, val_accuracy=accuracy, finished_at="2026-03-09T10:00:00+00:00", epochs=2)
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=PAST, gate=gate)["gate"]
    if gate == Gate():
        assert outcome is None
    else:
        assert outcome["passed"] == (failure is None)
        assert failure is None or failure in outcome["failures"][0]


def test_the_first_runs_of_a_schedule_pass_a_regression_gate_that_says_it_was_not_judged(make_run, tmp_path):
    folder = make_run(content_digests=DIGESTS, val_accuracy=0.1, finished_at="2026-03-09T10:00:00+00:00")
    gate = Gate(max_regression_sigma=1)
    report = build_report([folder], current=[RUN["fingerprint"]], past=PAST[:1], gate=gate)
    assert report["gate"]["passed"]
    assert "1 comparable run before, too few to know the noise" in report["gate"]["not_judged"][0]
    assert "Not judged yet" in format_table(report, width=300)
    judged = build_report([folder], current=[RUN["fingerprint"]], past=PAST, gate=gate)["gate"]
    assert (judged["passed"], judged["not_judged"]) == (False, [])


@pytest.mark.parametrize("examples", [10_000, None])
@pytest.mark.parametrize("before", [[0.72] * 20, [0.72, 0.7201] * 10, [0.72] * 3, [0.72, 0.72, 0.7201]])
def test_a_collapse_below_runs_that_came_out_alike_fails_the_gate(make_run, before, examples):
    past = [entry(n, value, test_examples=examples) for n, value in enumerate(before, start=1)]
    folder = make_run(
        content_digests=DIGESTS, test_examples=examples, val_accuracy=0.1, finished_at="2026-03-29T10:00:00+00:00"
    )
    gate = Gate(max_regression_sigma=3)
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=past, gate=gate)["gate"]
    assert (outcome["passed"], outcome["not_judged"]) == (False, [])


@pytest.mark.parametrize("before", [[0.72] * 20, [0.72, 0.7201] * 10])
def test_a_fall_within_the_sampling_error_passes_the_gate(make_run, before):
    past = [entry(n, value, test_examples=10_000) for n, value in enumerate(before, start=1)]
    folder = make_run(
        content_digests=DIGESTS, test_examples=10_000, val_accuracy=0.715, finished_at="2026-03-29T10:00:00+00:00"
    )
    gate = Gate(max_regression_sigma=3)
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=past, gate=gate)["gate"]
    assert (outcome["passed"], outcome["not_judged"]) == (True, [])


NO_EVIDENCE = [
    (SKIPPED | {"requested_device": "tpu", "curves": []}, "skipped, for tpu was requested and no TPU answers"),
    ({"dataset": "synthetic", "dataset_verified": False}, "CIFAR-10 was requested, it was trained on synthetic"),
    ({"requested_device": "gpu", "mismatch": MISMATCH}, "gpu was requested, it was trained on cpu"),
    ({"requested_device": "cpu", "device_verified": False}, "cpu was requested, and nothing that was measured shows"),
]


@pytest.mark.parametrize(("change", "reason"), NO_EVIDENCE)
@pytest.mark.parametrize("gate", [Gate(min_val_accuracy=0.1), Gate(max_regression_sigma=3)], ids=["accuracy", "sigma"])
def test_a_run_that_shows_nothing_of_what_was_asked_for_fails_the_gate(make_run, gate, change, reason):
    folder = make_run(**({"content_digests": DIGESTS} | change))
    outcome = build_report([folder], current=[RUN["fingerprint"]], gate=gate)["gate"]
    assert not outcome["passed"]
    assert any(reason in failure for failure in outcome["failures"])
    assert build_report([folder], current=[RUN["fingerprint"]])["gate"] is None, "where nothing is demanded"


def test_one_skipped_run_of_several_fails_the_gate(make_run):
    folders = [make_run("one"), make_run("other", curves=[], **(SKIPPED | {"fingerprint": "b" * 64}))]
    outcome = build_report(folders, current=["a" * 64, "b" * 64], gate=Gate(min_val_accuracy=0.1))["gate"]
    assert ["run bbbbbbbb is no evidence" in failure for failure in outcome["failures"]] == [True]


def test_a_gate_on_no_run_at_all_fails(make_run):
    outcome = build_report([make_run()], current=[], gate=Gate(min_val_accuracy=0.1))["gate"]
    assert outcome["failures"] == ["no run was asked for: nothing shows that the demands are met"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"content_digests": None}, "what run aaaaaaaa was trained on is not known"),
        ({"content_digests": DIGESTS, "val_accuracy": None}, "run aaaaaaaa has no accuracy to compare"),
    ],
)
def test_a_regression_that_cannot_be_judged_at_all_fails_the_gate(make_run, change, reason):
    folder = make_run(finished_at="2026-03-09T10:00:00+00:00", **change)
    gate = Gate(max_regression_sigma=3)
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=PAST, gate=gate)["gate"]
    assert any(reason in failure for failure in outcome["failures"])


def test_a_fall_below_runs_that_did_not_differ_fails_the_gate(make_run):
    past = [entry(n, 0.75, made_from="before", seed=n) for n in (1, 2, 3)]
    folder = make_run(content_digests=DIGESTS, val_accuracy=0.74, finished_at="2026-03-09T10:00:00+00:00")
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=past, gate=Gate(max_regression_sigma=9))["gate"]
    assert "where the earlier runs did not differ" in outcome["failures"][0]


def test_the_gates_sigma_is_as_rare_whatever_the_number_of_earlier_runs(make_run):
    few, many = ([entry(n, 0.70 + 0.001 * (-1) ** n + n * 1e-6) for n in range(1, number)] for number in (4, 20))
    folder = make_run(content_digests=DIGESTS, val_accuracy=0.69, finished_at="2026-03-29T10:00:00+00:00")
    gate = Gate(max_regression_sigma=3)
    assert build_report([folder], current=[RUN["fingerprint"]], past=few, gate=gate)["gate"]["passed"]
    assert not build_report([folder], current=[RUN["fingerprint"]], past=many, gate=gate)["gate"]["passed"]


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_gate_and_a_change_are_said_in_every_rendering(make_run, tmp_path, name):
    folder = make_run(content_digests=DIGESTS, val_accuracy=0.65, finished_at="2026-03-09T10:00:00+00:00")
    write_manifest(folder, stage="Train", identity={"settings": {}, "upstream": {}}, details={})
    text = render([folder], tmp_path / "out", past=PAST, gate=Gate(min_val_accuracy=0.7))[name]
    if name == "report.json":
        assert json.loads(text)["gate"]["failures"]
        return
    assert "The gate failed." in text
    for words in (
        "Compared with the last comparable run (2026-03-04 10:00 UTC): test accuracy −5.40 points, worse (3.9 σ)",
        "images/s 0, not judged: how fast the machine was is not known",
    ):
        assert words in text


def test_the_gates_words_name_the_test_accuracy(make_run):
    folder = make_run(content_digests=DIGESTS, val_accuracy=0.65, finished_at="2026-03-09T10:00:00+00:00")
    gate = Gate(min_val_accuracy=0.7, max_regression_sigma=1.0)
    failures = build_report([folder], current=[RUN["fingerprint"]], past=PAST, gate=gate)["gate"]["failures"]
    assert len(failures) == 2
    assert all(words.startswith("test accuracy of ") for words in failures)


def test_the_terminal_says_a_change_and_a_failed_gate(make_run):
    folder = make_run(content_digests=DIGESTS, val_accuracy=0.65, finished_at="2026-03-09T10:00:00+00:00")
    report = build_report([folder], current=[RUN["fingerprint"]], past=PAST, gate=Gate(min_val_accuracy=0.7))
    text = format_table(report, width=300)
    assert "! The gate failed." in text
    assert "test accuracy −5.40 points, worse" in text
