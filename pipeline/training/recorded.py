"""Recorded: what a training has to say of itself, as fields of the run's record (training's aid)."""

import os
import socket
from collections.abc import Mapping

import keras

from pipeline.config.training import TrainSettings
from pipeline.hardware.backend import choose_backend, computation_flags
from pipeline.hardware.receipt import Receipt
from pipeline.networks.model import LOGITS, PROBABILITIES, trained_by_logits
from pipeline.problems.problem import Problem
from pipeline.runs.metrics import examples_per_second
from pipeline.runs.record import FINISHED, SKIPPED, Segment, StoredRecords, names, seen_in
from pipeline.stream import InputStream
from pipeline.training import breakdown
from pipeline.training.checkpoint import History
from pipeline.training.computation import Computation
from pipeline.training.inputs import EVALUATED_SPLITS


def data_facts(manifest: Mapping, requested_dataset: str, problem: Problem) -> dict:
    """What it is trained on, by the manifest of the records."""
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
    """Whose a checkpoint is, and the records and the run that resuming from it takes: fields of the run's record."""
    return {name: about.get(name) for name in ("experiment", "records_fingerprint", "initial_run")}


def nothing_measured(settings: TrainSettings) -> dict:
    """What a run that did not take place has to say of itself: nothing."""
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
    """Hardware and computation: fields of the record, and what a process must share to resume from a checkpoint."""
    return {
        "backend": receipt.backend,
        "effective_device": receipt.effective_device,
        "device_name": receipt.device_name,
        "num_replicas": receipt.num_replicas,
        "precision": computation.precision,
        "jit_compile": computation.jit_compile,
        # From memory and from disk an epoch has another order.
        "input_in_memory": stream.in_memory,
        "computation_flags": computation_flags(os.environ),
    }


def segment(receipt: Receipt, first_epoch: int, last_epoch: int) -> Segment:
    """The epochs that this process trained so far."""
    return Segment(
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        hostname=socket.gethostname(),
        device_verified=receipt.device_verified,
        receipt=receipt.to_json(),
    )


def outcome_of(
    receipt: Receipt,
    history: History,
    model: keras.Model,
    stream: InputStream,
    kept: int,
    peak_device_bytes: int | None,
) -> dict:
    """What came of a run that finished, and the evidence of all processes that trained it."""
    rows, predictions = history.rows, stream.predictions_per_epoch
    rate = examples_per_second(rows, history.compiling(), examples_per_epoch=predictions)
    # Not this process, where no epoch was left to it: what it saw of its own machine trained nothing.
    last = history.segments[-1]
    return {
        "status": FINISHED,
        "hostname": last.hostname,
        "device_verified": all(one.device_verified for one in history.segments),
        "device_reason": last.receipt["device_reason"],
        "mismatch": receipt.mismatch,
        "receipt": last.receipt,
        **seen_in(last.receipt),
        "segments": tuple(history.segments),
        "outputs": LOGITS if trained_by_logits(model) else PROBABILITIES,
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
