"""Logging of a published run to MLflow, if ``MLFLOW_TRACKING_URI`` is set. No run depends on it."""

import json
import logging
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

# Telemetry is opt-in in this project.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

import mlflow
from mlflow.entities import Metric, Param, RunTag

from pipeline.errors import without_userinfo
from pipeline.problems.problem import EVALUATION_NAME
from pipeline.runs.metrics import METRICS_NAME, read_metrics
from pipeline.runs.record import FINISHED, FieldGroup, RunRecord, names, read_record

EXPERIMENT = "tensorcraft"

_EVALUATION_METRICS = (
    *("expected_calibration_error", "bits", "perplexity"),
    *("mean_average_precision", "micro_f1", "macro_f1", "exact_matches"),
)
# Limit of MLflow's own stores.
_MAX_VALUE_LENGTH = 500
_logger = logging.getLogger(__name__)


def log_run(folder: Path, *, tracking_uri: str) -> str | None:
    """Log settings, metrics and files of a run's folder to MLflow, once.

    ``tracking_uri`` is a server's address, or ``file:`` with a path. Returns MLflow's run id, or None after an error,
    which is logged.
    """
    try:
        client, record = mlflow.MlflowClient(tracking_uri), read_record(folder)
        experiment = client.get_experiment_by_name(EXPERIMENT)
        experiment_id = experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
        query = f"tags.fingerprint = '{record.fingerprint}' and tags.finished_at = '{record.finished_at}'"
        if runs := client.search_runs([experiment_id], query, max_results=1):
            return runs[0].info.run_id
        finished = round(datetime.fromisoformat(record.finished_at).timestamp() * 1000)
        run_id = client.create_run(experiment_id, start_time=finished, run_name=folder.name).info.run_id
        params = [Param(name, text) for name, text in _texts(record, "setting", "computation")]
        tags = [RunTag(name, text) for name, text in _texts(record, "identity", "data", "hardware", "evidence")]
        client.log_batch(run_id, [*_metrics(folder, record, finished)], params, tags)
        client.log_artifacts(run_id, str(folder))
        client.set_terminated(run_id, "FINISHED" if record.status == FINISHED else "KILLED", finished)
    # An error of the server must not discard a trained run.
    except Exception as error:
        _logger.warning("%s", without_userinfo(f"Cannot log to MLflow at {tracking_uri}: {error}"))
        return None
    _logger.info("Logged to MLflow as %s", run_id)
    return run_id


def _texts(record: RunRecord, *groups: FieldGroup) -> Iterator[tuple[str, str]]:
    """Yield names and values of scalar fields. MLflow also gets the file of the record."""
    for name in names(*groups):
        value = getattr(record, name)
        if isinstance(value, str | int | float | bool):
            yield name, str(value)[:_MAX_VALUE_LENGTH]


def _metrics(folder: Path, record: RunRecord, moment: int) -> Iterator[Metric]:
    if (folder / METRICS_NAME).exists():
        for row in read_metrics(folder / METRICS_NAME):
            values = {name: value for name, value in row.items() if name != "epoch" and value is not None}
            yield from (Metric(f"epoch_{name}", value, moment, row["epoch"]) for name, value in values.items())
    values = {name: getattr(record, name) for name in names("measured")} if record.status == FINISHED else {}
    if (folder / EVALUATION_NAME).exists():
        facts = json.loads((folder / EVALUATION_NAME).read_text(encoding="utf-8"))
        values |= {name: facts.get(name) for name in _EVALUATION_METRICS}
        values |= {f"binary_{name}": facts.get("binary", {}).get(name) for name in ("roc_auc", "average_precision")}
        for number, measures in enumerate(facts.get("values", ()), start=1):
            values |= {f"{name}_{number}": measures[name][0] for name in ("mae", "rmse", "r2")}
    for name, value in values.items():
        if isinstance(value, int | float):
            yield Metric(name, value, moment, record.epochs)
