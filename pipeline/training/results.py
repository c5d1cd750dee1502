"""Results of a training: the fields of its record, the files of its model, and its evaluation with other views."""

import logging
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

import keras
from safetensors.numpy import save

from pipeline.artifacts.manifest import read_manifest
from pipeline.hardware.backend import choose_backend
from pipeline.models.build import build_network, untrained_copy
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Problem
from pipeline.runs.load_model import load_trained
from pipeline.runs.metrics import MODEL_NAME, WEIGHTS_NAME, examples_per_second
from pipeline.runs.record import SCHEMA_VERSION, SKIPPED, RunRecord, names, recorded_settings, seen_in, write_record
from pipeline.settings.training import MODELS, TrainSettings
from pipeline.streams.tf_data import InputStream
from pipeline.training.checkpoint import History
from pipeline.training.launch import TrainRequest
from pipeline.training.model import named_weights
from pipeline.training.setup import EVALUATED_SPLITS, TrainingSetup, evaluation_streams
from pipeline.training.timing import peak_host_bytes

_logger = logging.getLogger(__name__)


def known_fields(request: TrainRequest, manifest: Mapping) -> dict:
    """The fields of the record that are known before the first step, from the request and the records' manifest."""
    initial, problem = request.initial, problem_of_records(manifest)
    task, splits, image = problem.task(manifest), manifest["splits"], manifest.get("image")
    stored = image and {
        "encoding": image["encoding"],
        "image_size": image["size"],
        "resize": image["resize"],
        "num_examples": sum(split["num_examples"] for split in splits.values()),
        "total_bytes": sum(entry["bytes"] for entry in manifest["files"] if "split" in entry),
        "skipped": manifest["source"]["skipped"],
    }
    return {
        "schema_version": SCHEMA_VERSION,
        "fingerprint": request.fingerprint,
        "hostname": socket.gethostname(),
        "problem": problem.name,
        "tokens": problem.tokens,
        "requested_dataset": request.requested_dataset,
        "dataset": manifest["source"]["dataset"],
        "dataset_verified": manifest["dataset_verified"],
        "content_digests": {name: split["content_digest"] for name, split in splits.items()},
        "records_fingerprint": manifest["fingerprint"],
        "records": stored,
        "input_shape": task.input_shape,
        "test_examples": splits["test"]["num_examples"] * task.predictions_per_example,
        **recorded_settings(request.settings),
        "experiment": request.experiment or request.requested_dataset,
        **({"initial_weights_digest": initial.digest, "initial_run": initial.run} if initial else {}),
    }


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


def outcome_of(setup: TrainingSetup, history: History, kept: int) -> dict:
    """The results of a finished run, with the evidence of all processes that trained it."""
    rows, stream, placement = history.rows, setup.stream, setup.placement
    rate = examples_per_second(rows, history.compiling(), examples_per_epoch=stream.predictions_per_epoch)
    # The last process that trained an epoch. It may not be this one.
    last = history.segments[-1]
    return {
        **setup.known,
        **setup.used(),
        "hostname": last["hostname"],
        "finished_on": setup.known["hostname"] if history.restored == len(rows) else None,
        "beginning": setup.beginning,
        "device_verified": all(one["device_verified"] for one in history.segments),
        "device_reason": last["receipt"]["device_reason"],
        "mismatch": setup.receipt["mismatch"],
        "receipt": last["receipt"],
        **seen_in(last["receipt"]),
        "segments": history.segments,
        "outputs": setup.outputs,
        "steps_per_execution": setup.model.steps_per_execution,
        "steps_per_epoch": stream.steps_per_epoch,
        "train_seconds": round(sum(row["train_seconds"] for row in rows), 4),
        "evaluation_seconds": round(sum(row["evaluation_seconds"] for row in rows), 4),
        "first_epoch_seconds": rows[0]["train_seconds"],
        "examples_per_second": round(rate, 1),
        **{name: value for name, value in rows[kept - 1].items() if name.startswith(EVALUATED_SPLITS)},
        "kept_epoch": kept,
        "epochs_restored": history.restored,
        "peak_host_bytes": peak_host_bytes(),
        "peak_device_bytes": placement.runtime.peak_device_bytes(placement.effective_device),
    }


def save_network(setup: TrainingSetup) -> None:
    """Write the weights and the model into the run's folder."""
    model, name = setup.model, setup.settings.model
    # save_file would write a file that only its owner may read.
    (setup.folder / WEIGHTS_NAME).write_bytes(save(named_weights(model)))
    # Without the optimizer, so that the file needs no class of this project.
    if name not in MODELS.builtin:
        # A copy, because a new model would have other names of unnamed layers.
        trained = untrained_copy(model, setup.task.input_shape)
    else:
        trained = build_network(setup.task, name, setup.precision)
    trained.set_weights(model.get_weights())
    trained.save(setup.folder / MODEL_NAME)


def augmented_accuracies(
    problem: Problem, model: keras.Model, evaluated: Mapping[str, InputStream], how: str
) -> dict[str, float]:
    """The accuracies with test-time augmentation, as fields of the record. Empty for "none"."""
    accuracies = {}
    for split, stream in evaluated.items() if how != "none" else ():
        evaluation = problem.evaluation
        accuracy = evaluation.figures(model, evaluation.predict(model, stream, how))["accuracy"]
        _logger.info("%s accuracy with test-time augmentation %s: %.4f", split, how, accuracy)
        accuracies[f"{split}_tta_accuracy"] = accuracy
    return accuracies


def evaluate_again(
    run: Path, records_folder: Path, test_time_augmentation: str, folder: Path, *, model: str = ""
) -> RunRecord:
    """Copy a run into an empty folder, with the figures of another test-time augmentation in its record.

    ``run`` is the folder of a published run, and ``records_folder`` that of its records. ``model`` is [Train] model of
    the present settings, see ``load_trained``. Returns the record as it was written.

    Raises:
        DamagedArtifactError: the run has no model.
    """
    for entry in read_manifest(run)["files"]:
        (folder / entry["name"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / entry["name"], folder / entry["name"])
    trained = load_trained(run, model=model)
    # The model was saved without its loss. Only the accuracy is used.
    trained.model.compile(loss=keras.losses.SparseCategoricalCrossentropy())
    manifest = read_manifest(records_folder)
    streams = evaluation_streams(records_folder, manifest, 1, trained.record.seed)
    figures = {"test_tta_accuracy": None, "validation_tta_accuracy": None}
    figures |= augmented_accuracies(problem_of_records(manifest), trained.model, streams, test_time_augmentation)
    record = trained.record.model_copy(update={"test_time_augmentation": test_time_augmentation, **figures})
    write_record(folder, record)
    return record
