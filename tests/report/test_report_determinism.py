"""Bit-identical in the report: of the weights a run has now, as far as it was seen."""

import json
from dataclasses import replace

import pytest
from report_runs import SKIPPED, row_of, run_of

from pipeline import machine
from pipeline.artifacts.manifest import write_manifest
from pipeline.errors import SettingsError
from pipeline.runs.determinism import check_machine, compare, determinism_path, read_determinism
from pipeline.runs.metrics import WEIGHTS_NAME


def setup_module() -> None:
    global build_report, measured_cells, repeated
    from pipeline.report import build_report
    from pipeline.report.sections.scoreboard import measured_cells, repeated


IDENTICAL, DIFFERENT = True, False


@pytest.mark.parametrize(
    ("found", "deterministic", "said"),
    [
        ([None], "false", "–"),
        ([None, None], "true", "not repeated"),
        ([IDENTICAL], "false", "bit-identical"),
        ([IDENTICAL, IDENTICAL], "true", "bit-identical: 2 of 2 runs"),
        ([IDENTICAL, None], "true", "bit-identical: 1 of 2 runs, 1 not repeated"),
        ([DIFFERENT], "true", "differs"),
        ([IDENTICAL, DIFFERENT], "true", "differs: 1 of 2 runs"),
        ([IDENTICAL, DIFFERENT, None], "true", "differs: 1 of 3 runs, 1 not repeated"),
    ],
)
def test_a_row_says_what_was_seen_of_its_runs(found, deterministic, said):
    runs = [run_of(deterministic=deterministic).model_copy(update={"repetition": repetition(one)}) for one in found]
    assert repeated(row_of(runs[0], runs=runs)) == said


def repetition(is_identical):
    from pipeline.report.data.reading import Repetition

    return None if is_identical is None else Repetition(is_identical=is_identical, trainings=())


def test_weights_that_differ_are_marked(make_run):
    (row,) = build_report([make_run()], current=[]).scenarios
    marked = {"differs": DIFFERENT, "bit-identical": IDENTICAL}
    for words, one in marked.items():
        run = row.run.model_copy(update={"repetition": repetition(one)})
        cells = measured_cells(replace(row, runs=[run]))
        assert [cell.needs_care for cell in cells if getattr(cell, "text", "") == words] == [words == "differs"]


@pytest.fixture
def root(tmp_path, make_run):
    """A run that was trained twice, with the second's weights beside it."""
    for name in ("runs", "determinism"):
        (tmp_path / name).mkdir()
    for name in ("runs/cnn", "again"):
        folder = make_run(name)
        (folder / WEIGHTS_NAME).write_bytes(b"weights")
    publish(tmp_path)
    compare(tmp_path / "runs/cnn", tmp_path / "again")
    return tmp_path


def publish(root):
    write_manifest(root / "runs/cnn", stage="Train", identity={"settings": {}, "upstream": {}}, details={})


def said(root) -> tuple[object, str]:
    report = build_report([root / "runs/cnn"], current=[])
    return report.runs[0].repetition, repeated(report.scenarios[0])


def test_the_same_weights_are_bit_identical_with_where_that_was_seen(root):
    found, words = said(root)
    assert words == "bit-identical"
    assert found.is_identical
    assert [one.model_fields_set for one in found.trainings] == [
        {"weights_sha256", "finished_at", "hostname", "device_name"}
    ] * 2


def test_of_weights_that_came_later_nothing_is_said(root):
    (root / "runs/cnn" / WEIGHTS_NAME).write_bytes(b"others")
    (root / "runs/cnn" / "manifest.json").unlink()
    publish(root)
    assert said(root) == (None, "–")


def test_a_file_about_another_run_is_ignored(root):
    path = determinism_path(root / "runs/cnn")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"run": "b" * 64}))
    assert said(root) == (None, "–")


def test_one_that_came_out_otherwise_is_not_forgotten_when_the_next_is_the_same(root):
    run, again = root / "runs/cnn", root / "again"
    for count, content, expected in ((2, b"others", False), (3, b"weights", False)):
        (again / WEIGHTS_NAME).write_bytes(content)
        found = compare(run, again, read_determinism(run))
        assert (found, len(found.again), found.is_identical) == (read_determinism(run), count, expected)


@pytest.mark.parametrize(
    "changes",
    [
        *(SKIPPED, {"effective_device": "gpu"}, {"precision": "float32"}, {"device_name": "another processor"}),
        *({"granted_cores": 64}, {"num_replicas": 2}, {"jit_compile": True}, {"input_in_memory": False}),
    ],
)
def test_on_other_hardware_nothing_is_compared(root, make_run, changes):
    other = make_run("other", curves=[] if changes is SKIPPED else None, **changes)
    (other / WEIGHTS_NAME).write_bytes(b"weights")
    with pytest.raises(SettingsError, match="This does not test its kernels"):
        compare(root / "runs/cnn", other)


@pytest.mark.parametrize("changes", [{"cpu_model": "another"}, {"granted_cores": 4_096}])
def test_a_run_of_another_machine_is_refused_before_it_is_trained_again(make_run, changes):
    host = machine.describe()
    check_machine(make_run("mine", receipt={"host": host}), host)
    check_machine(make_run("old"), host)
    check_machine(make_run("of-a-gpu", receipt={"host": host | changes}, effective_device="gpu"), host)
    with pytest.raises(SettingsError, match="This does not test its kernels"):
        check_machine(make_run("elsewhere", receipt={"host": host | changes}), host)


def test_a_damaged_result_is_left_out(root, caplog):
    path = determinism_path(root / "runs/cnn")
    content = json.loads(path.read_text())
    content["again"][0]["weights_sha256"] = 0
    path.write_text(json.dumps(content))
    assert said(root) == (None, "–")
    assert "not included in the report" in caplog.text
