"""The schema of a run: a setting that is added to it is seen by all who read it, earlier versions stay readable."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import pytest
from prometheus_client.parser import text_string_to_metric_families
from report_runs import RUN, write_origin

from pipeline.runs import record
from pipeline.runs.record import About, RunRecord, read_record, write_record
from pipeline.settings.training import TrainSettings

# Where a TPU is, what is done beside the training: no run differs by it.
NOT_RECORDED = {"profile_steps", "time_limit_seconds"}
NOT_RECORDED |= {"coordinator_address", "process_id", "join_timeout_seconds"}


class Wider(RunRecord):
    dropout: Annotated[float, About(group="setting", compared=True)] = 0.3


@pytest.fixture
def wider(monkeypatch):
    from pipeline.report.data import reading

    monkeypatch.setattr(record, "RunRecord", Wider)
    for name in ("Entry", "Run"):
        monkeypatch.setattr(reading, name, type(name, (Wider, getattr(reading, name)), {}))


def test_every_setting_of_training_is_recorded():
    recorded = record.recorded_settings(TrainSettings())
    asked_for = {name.removeprefix("requested_") for name in recorded}
    assert asked_for == {field.name for field in dataclasses.fields(TrainSettings)} - NOT_RECORDED
    assert recorded["requested_device"] == TrainSettings().device


def test_a_new_setting_is_recorded(wider):
    settings = SimpleNamespace(**dataclasses.asdict(TrainSettings()), dropout=0.5)
    assert record.recorded_settings(settings)["dropout"] == 0.5


def test_a_new_setting_is_a_label_of_the_metrics_for_monitoring(wider, tmp_path):
    from tasks.scheduled import Outcome, write_metrics

    runs = [Wider(**RUN, dropout=dropout) for dropout in (0.1, 0.2)]
    outcome = Outcome(task="Nightly", started_at="2026-11-20T02:00:00+00:00", seconds=1.0, exit_code=0)
    write_metrics(tmp_path / "x.prom", outcome, {}, runs)
    families = text_string_to_metric_families((tmp_path / "x.prom").read_text())
    labels = [
        sample.labels for family in families for sample in family.samples if sample.name.endswith("accuracy_ratio")
    ]
    assert [found["dropout"] for found in labels] == ["0.1", "0.2"]


def test_a_new_setting_is_a_parameter_in_mlflow(wider, make_run, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    from pipeline.runs import tracking

    store = (tmp_path / "mlruns").as_uri()
    run_id = tracking.log_run(make_run(dropout=0.4), tracking_uri=store)
    assert mlflow.MlflowClient(store).get_run(run_id).data.params["dropout"] == "0.4"


def test_a_new_setting_is_a_hyper_parameter_in_tensorboard(wider, tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    from pipeline.problems.problem import units_of
    from pipeline.runs.metrics import TENSORBOARD_NAME
    from pipeline.training.results import Summaries

    Summaries(tmp_path).write_run(Wider(**RUN, dropout=0.25).model_dump(), {}, units_of("next_token"))
    events = (tmp_path / TENSORBOARD_NAME).glob("events*")
    assert any("dropout" in str(event) for path in events for event in EventFileLoader(str(path)).Load())


def test_a_new_setting_tells_runs_apart_in_every_part_of_the_report(wider, make_run):
    from pipeline.report import build_report, compare_runs

    shared = {"content_digests": {"train": "1"}, "examples_per_second": 1000.0}
    gpu = {"effective_device": "gpu", "device_name": "H200", "global_batch_size": 256}
    runs = {"one": {"dropout": 0.1}, "other": {"dropout": 0.2}, "gpu": {"dropout": 0.2, **gpu}}
    folders = [
        write_origin(make_run(name, fingerprint=name, **shared, **changes), **changes) for name, changes in runs.items()
    ]
    report = build_report(folders, current=[])
    assert {row.run.dropout for row in report.scenarios} == {0.1, 0.2}
    assert len(report.scenarios) == 3
    assert next(row for row in report.scenarios if row.run.dropout == 0.1).speedup.words.endswith(
        " in global batch, dropout"
    )
    assert sorted((group[0].dropout, group[0].effective_device) for group in report.history) == [
        (0.1, "cpu"), (0.2, "cpu"), (0.2, "gpu")]  # fmt: skip
    bare = [make_run(f"bare {name}", **runs[name]) for name in ("one", "other")]
    for pair in (folders[:2], bare):
        assert ("settings", "dropout", 0.1, 0.2) in [
            (d.section, d.name, d.first, d.second) for d in compare_runs(*pair)
        ]


def test_a_record_of_the_first_version_is_filled_from_its_receipt(make_run):
    receipt = {"host": {"granted_cores": 2, "granted_memory_bytes": 25_200_000_000},
               "probe": {"convolution_flops_per_second": 7e11}}  # fmt: skip
    found = read_record(make_run(receipt=receipt))
    assert (found.schema_version, found.granted_cores, found.granted_memory_gib) == (1, 2, 23)
    assert found.reference_flops_per_second == 7e11
    assert (found.scale_learning_rate, found.cache, found.segments) == ("none", "auto", ())


def test_flags_of_computation_of_earlier_versions_are_those_of_their_receipts(make_run):
    flags = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "0"}

    assert RunRecord(**RUN, receipt={"flags": flags}).computation_flags == {"OMP_NUM_THREADS": "1"}
    assert RunRecord(**RUN).computation_flags == {}


def test_flags_of_computation_tell_rows_and_history_groups_apart(make_run):
    from pipeline.report import build_report

    shared = {"content_digests": {"train": "1"}, "schema_version": 11}
    folders = [
        write_origin(make_run(f"run {at}", fingerprint=f"{at}", computation_flags=flags, **shared))
        for at, flags in enumerate([{}, {}, {"OMP_NUM_THREADS": "1"}])
    ]
    report = build_report(folders, current=[])
    assert sorted(len(row.fingerprints) for row in report.scenarios) == [1, 2]
    assert len(report.history) == 2


@pytest.mark.parametrize("receipt", [{"host": 3, "probe": []}, {"host": {"granted_memory_bytes": "much"}}])
def test_a_receipt_that_says_nothing_of_the_host_leaves_it_unknown(make_run, receipt):
    found = read_record(make_run(receipt=receipt))
    assert (found.granted_cores, found.granted_memory_gib, found.reference_flops_per_second) == (None, None, None)


def test_a_record_with_nan_from_an_earlier_version_is_read_as_unknown_and_never_written_again(make_run, tmp_path):
    folder = make_run()
    (folder / "run.json").write_text(json.dumps(RUN | {"test_loss": float("nan"), "train_seconds": float("inf")}))
    found = read_record(folder)
    assert (found.test_loss, found.train_seconds) == (None, None)
    write_record(tmp_path, RunRecord(**RUN | {"test_loss": float("nan")}))
    text = (tmp_path / "run.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["test_loss"] is None
    assert read_record(tmp_path) == RunRecord(**RUN | {"test_loss": None})


def test_a_record_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        RunRecord(**RUN).seed = 3


def test_every_field_says_what_it_is():
    for name, field in RunRecord.model_fields.items():
        assert [one for one in field.metadata if isinstance(one, About)], name


def test_no_other_module_lists_settings_by_name():
    listed = '"scale_learning_rate"'
    readers = [path for room in ("report", "unattended") for path in Path("pipeline", room).rglob("*.py")]
    assert not [str(path) for path in [*readers, Path("pipeline/runs/tracking.py")] if listed in path.read_text()]
