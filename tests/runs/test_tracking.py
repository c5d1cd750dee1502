"""MLflow: a run logged to a store of files, as MLflow itself reads it back."""

import json

import pytest
from luigi_process import FAST, TINY
from report_runs import EPOCH, RUN, SKIPPED, write_evaluation


def setup_module() -> None:
    global mlflow, tracking
    mlflow = pytest.importorskip("mlflow", reason="the optional package of MLflow is not installed")
    from pipeline.runs import tracking


MORE = {"status": "finished", "scale_learning_rate": "none", "replicas": 1}


@pytest.fixture
def store(tmp_path, monkeypatch):
    # MLflow keeps its store of files for those who have one, and asks to be told so.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


def test_a_run_is_logged_with_settings_metrics_by_epoch_figures_and_files(make_run, store):
    folder = write_evaluation(make_run(**MORE))
    run_id = tracking.log_run(folder, tracking_uri=store)
    client = mlflow.MlflowClient(store)
    run = client.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == folder.name
    assert run.data.params["global_batch_size"] == "128"
    assert run.data.tags["dataset_verified"] == "True"
    assert run.data.metrics["test_accuracy"] == RUN["test_accuracy"]
    assert run.data.metrics["expected_calibration_error"] > 0
    history = client.get_metric_history(run_id, "epoch_test_accuracy")
    assert [(point.step, point.value) for point in history] == [(1, EPOCH["test_accuracy"]), (2, 0.738)]
    assert {"run.json", "metrics.jsonl", "evaluation.json"} <= {file.path for file in client.list_artifacts(run_id)}


def test_a_run_is_logged_once_and_a_retrained_run_again(make_run, store):
    folder = make_run(**MORE)
    first = tracking.log_run(folder, tracking_uri=store)
    assert tracking.log_run(folder, tracking_uri=store) == first
    (folder / "run.json").write_text(json.dumps(RUN | MORE | {"finished_at": "2026-03-02T10:00:00+00:00"}))
    assert tracking.log_run(folder, tracking_uri=store) != first


def test_a_run_that_was_skipped_is_logged_without_figures(make_run, store):
    folder = make_run(curves=[], **(MORE | SKIPPED))
    (folder / "metrics.jsonl").unlink()
    run = mlflow.MlflowClient(store).get_run(tracking.log_run(folder, tracking_uri=store))
    assert (run.info.status, run.data.tags["status"], run.data.metrics) == ("KILLED", "skipped", {})


def test_a_store_that_cannot_be_had_costs_a_warning_and_no_run(make_run, caplog):
    assert tracking.log_run(make_run(**MORE), tracking_uri="nonsense://x") is None
    assert "Cannot log to MLflow at nonsense://x" in caplog.text


@pytest.mark.slow
def test_the_pipeline_logs_its_run_where_the_address_is_set(first_run, tmp_path, store):
    luigi = first_run.copy(tmp_path)
    more = {"MLFLOW_TRACKING_URI": store, "MLFLOW_ALLOW_FILE_STORE": "true"}
    assert luigi(*FAST, **more).returncode == 0
    assert not (tmp_path / "mlruns").exists(), "nothing was trained"
    done = luigi(*FAST, *TINY, "--Train-seed", "4", **more)
    assert done.returncode == 0, done.stderr
    client = mlflow.MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name(tracking.EXPERIMENT).experiment_id])
    assert run.data.params["seed"] == "4"
    record = json.loads((luigi.root / "runs" / run.info.run_name / "run.json").read_text())
    assert run.data.metrics["test_accuracy"] == record["test_accuracy"]
