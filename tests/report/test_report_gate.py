"""The gate, and how it and a change are said in every rendering."""

import json

import pytest
from report_history_entries import DIGESTS, entry, past
from report_runs import MISMATCH, RUN, SKIPPED, render

from pipeline.artifacts.manifest import write_manifest


def setup_module() -> None:
    global Gate, build_report, format_table
    from pipeline.report import Gate, build_report, format_table


@pytest.mark.parametrize(
    ("gate", "accuracy", "failure"),
    [
        ({}, 0.1, None),
        ({"min_test_accuracy": 0.7}, 0.7, None),
        ({"min_test_accuracy": 0.7}, 0.69, "69.00%, required: at least 70.00%"),
        ({"min_test_accuracy": 0.7}, None, "–, required: at least 70.00%"),
        ({"max_regression_sigma": 3}, 0.702, None),
        ({"max_regression_sigma": 3}, 0.9, None),
        ({"max_regression_sigma": 3}, 0.65, "fell from 70.40% to 65.00%"),
    ],
)
def test_the_gate_fails_for_what_its_settings_demand(make_run, gate, accuracy, failure):
    folder = make_run(
        content_digests=DIGESTS, test_accuracy=accuracy, finished_at="2026-03-09T10:00:00+00:00", epochs=2
    )
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=past(), gate=Gate(**gate)).gate
    if not gate:
        assert outcome is None
    else:
        assert outcome.passed == (failure is None)
        assert failure is None or failure in outcome.failures[0]
        assert all(words.startswith("Test accuracy of ") for words in outcome.failures)


@pytest.mark.parametrize(
    ("allowed", "loss", "failure"),
    [
        (0.0, 9.9, None),
        (1.52, 1.52, None),
        (1.52, 1.5325, "1.5325, required: at most 1.5200 ([Report] max_test_loss)"),
        (1.52, None, "–, required: at most 1.5200"),
    ],
)
def test_a_loss_above_what_is_allowed_fails_the_gate(make_run, allowed, loss, failure):
    gate = Gate(min_test_accuracy=0.01, max_test_loss=allowed)
    outcome = build_report([make_run(test_loss=loss)], current=[RUN["fingerprint"]], gate=gate).gate
    assert outcome.max_test_loss == allowed
    assert outcome.passed == (failure is None)
    assert failure is None or failure in outcome.failures[-1]


def test_the_first_runs_of_a_schedule_pass_a_regression_gate_that_says_it_was_not_judged(make_run, tmp_path):
    folder = make_run(content_digests=DIGESTS, test_accuracy=0.1, finished_at="2026-03-09T10:00:00+00:00")
    gate = Gate(max_regression_sigma=1)
    report = build_report([folder], current=[RUN["fingerprint"]], past=past()[:1], gate=gate)
    assert report.gate.passed
    assert "1 earlier comparable run, too few to estimate the noise" in report.gate.not_judged[0]
    assert "Not judged yet" in format_table(report, width=300)
    judged = build_report([folder], current=[RUN["fingerprint"]], past=past(), gate=gate).gate
    assert (judged.passed, judged.not_judged) == (False, [])


ALIKE = [0.72] * 20, [0.72, 0.7201] * 10
FEW_ALIKE = [0.72] * 3, [0.72, 0.72, 0.7201]


@pytest.mark.parametrize(
    ("accuracy", "examples", "before", "passes"),
    [
        *((0.1, examples, before, False) for examples in (10_000, None) for before in (*ALIKE, *FEW_ALIKE)),
        # Within the sampling error of the test split.
        *((0.715, 10_000, before, True) for before in ALIKE),
    ],
)
def test_a_collapse_below_runs_that_came_out_alike_fails_the_gate(make_run, accuracy, examples, before, passes):
    past = [entry(n, value, test_examples=examples) for n, value in enumerate(before, start=1)]
    changes = {"test_examples": examples, "test_accuracy": accuracy, "finished_at": "2026-03-29T10:00:00+00:00"}
    folder, gate = make_run(content_digests=DIGESTS, **changes), Gate(max_regression_sigma=3)
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=past, gate=gate).gate
    assert (outcome.passed, outcome.not_judged) == (passes, [])


NO_EVIDENCE = [
    (SKIPPED | {"requested_device": "tpu", "curves": []}, "skipped because tpu was requested. no TPU answers"),
    ({"dataset": "synthetic", "dataset_verified": False}, "CIFAR-10 was requested, but the run used synthetic"),
    ({"requested_device": "gpu", "mismatch": MISMATCH}, "gpu was requested, but the run used cpu"),
    ({"requested_device": "cpu", "device_verified": False}, "cpu was requested, but no measurement confirms"),
    ({"test_accuracy": 0.95, "test_loss": None}, "its test loss is not finite"),
]


@pytest.mark.parametrize(("change", "reason"), NO_EVIDENCE)
@pytest.mark.parametrize("gate", [{"min_test_accuracy": 0.1}, {"max_regression_sigma": 3}], ids=["accuracy", "sigma"])
def test_a_run_that_shows_nothing_of_what_was_asked_for_fails_the_gate(make_run, gate, change, reason):
    folder = make_run(**({"content_digests": DIGESTS} | change))
    outcome = build_report([folder], current=[RUN["fingerprint"]], gate=Gate(**gate)).gate
    assert not outcome.passed
    assert any(reason in failure for failure in outcome.failures)
    assert build_report([folder], current=[RUN["fingerprint"]]).gate is None, "where nothing is demanded"


def test_one_skipped_run_of_several_fails_the_gate(make_run):
    folders = [make_run("one"), make_run("other", curves=[], **(SKIPPED | {"fingerprint": "b" * 64}))]
    outcome = build_report(folders, current=["a" * 64, "b" * 64], gate=Gate(min_test_accuracy=0.1)).gate
    assert ["Run bbbbbbbb does not count" in failure for failure in outcome.failures] == [True]


def test_a_gate_on_no_run_at_all_fails(make_run):
    outcome = build_report([make_run()], current=[], gate=Gate(min_test_accuracy=0.1)).gate
    assert outcome.failures == ["No run was requested, so the thresholds cannot be checked"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"content_digests": None}, "The training data of run aaaaaaaa are unknown"),
        ({"content_digests": DIGESTS, "test_accuracy": None}, "Run aaaaaaaa has no test accuracy"),
    ],
)
def test_a_regression_that_cannot_be_judged_at_all_fails_the_gate(make_run, change, reason):
    folder = make_run(finished_at="2026-03-09T10:00:00+00:00", **change)
    gate = Gate(max_regression_sigma=3)
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=past(), gate=gate).gate
    assert any(reason in failure for failure in outcome.failures)


def test_a_fall_below_runs_that_did_not_differ_fails_the_gate(make_run):
    past = [entry(n, 0.75, made_from="before", seed=n) for n in (1, 2, 3)]
    folder = make_run(content_digests=DIGESTS, test_accuracy=0.74, finished_at="2026-03-09T10:00:00+00:00")
    outcome = build_report([folder], current=[RUN["fingerprint"]], past=past, gate=Gate(max_regression_sigma=9)).gate
    assert "although earlier runs agree exactly" in outcome.failures[0]


def test_the_gates_sigma_is_as_rare_whatever_the_number_of_earlier_runs(make_run):
    few, many = ([entry(n, 0.70 + 0.001 * (-1) ** n + n * 1e-6) for n in range(1, number)] for number in (4, 20))
    folder = make_run(content_digests=DIGESTS, test_accuracy=0.69, finished_at="2026-03-29T10:00:00+00:00")
    gate = Gate(max_regression_sigma=3)
    assert build_report([folder], current=[RUN["fingerprint"]], past=few, gate=gate).gate.passed
    assert not build_report([folder], current=[RUN["fingerprint"]], past=many, gate=gate).gate.passed


def test_a_failed_gate_and_a_change_are_said_in_every_rendering(make_run, tmp_path):
    folder = make_run(content_digests=DIGESTS, test_accuracy=0.65, finished_at="2026-03-09T10:00:00+00:00")
    write_manifest(folder, stage="Train", identity={"settings": {}, "upstream": {}}, details={})
    how = {"past": past(), "gate": Gate(min_test_accuracy=0.7)}
    files = render([folder], tmp_path / "out", **how)
    assert json.loads(files["report.json"])["gate"]["failures"]
    for name in ("report.md", "report.html"):
        assert "Thresholds not reached." in files[name]
        for words in (
            "Since the last comparable run (2026-03-04 10:00 UTC), the test accuracy changed by −5.40 points, worse",
            "The throughput changed by 0 images/s, not compared because the speed of the machine is unknown.",
        ):
            assert words in files[name], name
    table = format_table(build_report([folder], current=[RUN["fingerprint"]], **how), width=300)
    assert "Thresholds not reached." not in table, "the error of the gate follows"
    assert "the test accuracy changed by −5.40 points, worse" in " ".join(table.split())
