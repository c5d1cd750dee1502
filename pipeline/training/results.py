"""Results of a training: the fields of its record, and the files of its model."""

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import keras
from safetensors.numpy import save

from pipeline.config.own_code import is_own
from pipeline.config.training import TrainSettings
from pipeline.errors import message
from pipeline.hardware.backend import choose_backend, computation_flags
from pipeline.hardware.receipt import Receipt
from pipeline.networks.build import build_network
from pipeline.networks.model import kind_trained_on
from pipeline.networks.own import untrained_copy
from pipeline.problems.find import problem_of_records
from pipeline.problems.problem import Problem
from pipeline.runs.metrics import MODEL_NAME, WEIGHTS_NAME, examples_per_second
from pipeline.runs.record import (
    FINISHED,
    SCHEMA_VERSION,
    SKIPPED,
    Segment,
    StoredRecords,
    names,
    recorded_settings,
    seen_in,
)
from pipeline.stream import InputStream
from pipeline.training import breakdown
from pipeline.training.checkpoint import History
from pipeline.training.computation import Computation
from pipeline.training.initial import named_weights
from pipeline.training.inputs import EVALUATED_SPLITS
from pipeline.training.request import TrainRequest

_logger = logging.getLogger(__name__)


def known_fields(request: TrainRequest, manifest: Mapping) -> dict:
    """The fields of the record that are known before the first step."""
    initial, problem = request.initial, problem_of_records(manifest)
    return {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": request.fingerprint,
        "hostname": socket.gethostname(),
        "problem": problem.name,
        **data_facts(manifest, request.requested_dataset, problem),
        **recorded_settings(request.settings),
        "experiment": request.experiment or request.requested_dataset,
        **({"initial_weights_digest": initial.digest, "initial_run": initial.run} if initial else {}),
    }


def data_facts(manifest: Mapping, requested_dataset: str, problem: Problem) -> dict:
    """The data of a run, from the manifest of the records."""
    task = problem.task(manifest)
    return {
        "requested_dataset": requested_dataset,
        "tokens": problem.tokens,
        "dataset": manifest["source"]["dataset"],
        "dataset_verified": manifest["dataset_verified"],
        "content_digests": {name: split["content_digest"] for name, split in manifest["splits"].items()},
        "records_fingerprint": manifest["fingerprint"],
        "records": StoredRecords.of_manifest(manifest),
        "input_shape": task.input_shape,
        "test_examples": manifest["splits"]["test"]["num_examples"] * task.predictions_per_example,
    }


def belongs_to(about: Mapping) -> dict:
    """The experiment of a checkpoint, and the records and the run that it needs: fields of the record."""
    return {name: about.get(name) for name in ("experiment", "records_fingerprint", "initial_run")}


def nothing_measured(settings: TrainSettings) -> dict:
    """The fields of a skipped run."""
    return {
        **dict.fromkeys(names("measured")),
        "epochs_restored": 0,
        "status": SKIPPED,
        "backend": choose_backend(settings),
        "effective_device": "none",
        "device_verified": False,
        "device_name": None,
        "num_replicas": 0,
        "precision": settings.precision,
        "jit_compile": False,
    }


def used_by(receipt: Receipt, computation: Computation, stream: InputStream) -> dict:
    """Hardware and computation: fields of the record that a process must share to resume from a checkpoint."""
    return {
        "backend": receipt["backend"],
        "effective_device": receipt["effective_device"],
        "device_name": receipt["device_name"],
        "num_replicas": receipt["num_replicas"],
        "precision": computation.precision,
        "jit_compile": computation.jit_compile,
        # The order of an epoch from disk differs.
        "input_in_memory": stream.in_memory,
        "computation_flags": computation_flags(os.environ),
    }


def segment(receipt: Receipt, first_epoch: int, last_epoch: int) -> Segment:
    """The epochs of this process."""
    return Segment(
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        hostname=socket.gethostname(),
        device_verified=receipt["device_verified"],
        receipt=receipt,
    )


def outcome_of(
    receipt: Receipt,
    history: History,
    model: keras.Model,
    stream: InputStream,
    kept: int,
    peak_device_bytes: int | None,
) -> dict:
    """The results of a finished run, with the evidence of all processes that trained it."""
    rows, predictions = history.rows, stream.predictions_per_epoch
    rate = examples_per_second(rows, history.compiling(), examples_per_epoch=predictions)
    # The last process that trained an epoch. It may not be this one.
    last = history.segments[-1]
    return {
        "status": FINISHED,
        "hostname": last.hostname,
        "device_verified": all(one.device_verified for one in history.segments),
        "device_reason": last.receipt["device_reason"],
        "mismatch": receipt["mismatch"],
        "receipt": last.receipt,
        **seen_in(last.receipt),
        "segments": tuple(history.segments),
        "outputs": kind_trained_on(model),
        "steps_per_execution": model.steps_per_execution,
        "steps_per_epoch": stream.steps_per_epoch,
        "train_seconds": round(sum(row["train_seconds"] for row in rows), 4),
        "evaluation_seconds": round(sum(row["evaluation_seconds"] for row in rows), 4),
        "first_epoch_seconds": rows[0]["train_seconds"],
        "examples_per_second": round(rate, 1),
        **{name: value for name, value in rows[kept - 1].items() if name.startswith(tuple(EVALUATED_SPLITS))},
        "peak_host_bytes": breakdown.peak_host_bytes(),
        "peak_device_bytes": peak_device_bytes,
    }


def save_network(model: keras.Model, manifest: Mapping, settings: TrainSettings, precision: str, folder: Path) -> None:
    """Write the weights and the model into a run's folder."""
    # save_file would write a file that only its owner may read.
    (folder / WEIGHTS_NAME).write_bytes(save(named_weights(model)))
    # Without the optimizer, so that the file needs no class of this project.
    if is_own(settings.model):
        # A copy, because a new model would have other names of unnamed layers.
        trained = untrained_copy(model, problem_of_records(manifest).task(manifest).input_shape)
    else:
        trained = build_network(manifest, settings.model, precision)
    trained.set_weights(model.get_weights())
    trained.save(folder / MODEL_NAME)


def augmented_accuracies(model: keras.Model, evaluated: Mapping[str, InputStream], how: str) -> dict[str, float]:
    """The accuracies with test-time augmentation, as fields of the record. Empty for "none"."""
    if how == "none":
        return {}
    _logger.info("evaluating with test-time augmentation: %s", how)
    accuracies = {}
    for prefix, stream in evaluated.items():
        evaluation = stream.split.problem.evaluation
        accuracies[prefix] = evaluation.figures(model, evaluation.predict(model, stream, how))["accuracy"]
    _logger.info("with test-time augmentation: %s", _accuracies(accuracies))
    return {f"{prefix}_tta_accuracy": accuracy for prefix, accuracy in accuracies.items()}


@message
def _accuracies(accuracies: Mapping[str, float]) -> str:
    return ", ".join(f"{EVALUATED_SPLITS[prefix]} accuracy {value:.4f}" for prefix, value in accuracies.items())
