"""Results of a training: fields of the record, TensorBoard logs, files of the model, and test-time augmentation."""

import json
import logging
import math
import shutil
import socket
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from safetensors.numpy import save

from pipeline.artifacts.manifest import read_manifest
from pipeline.hardware.placement import choose_backend
from pipeline.models.build import build_for_task, is_subclassed, save_copy
from pipeline.models.model import named_weights
from pipeline.problems import problem_of_records
from pipeline.problems.problem import Problem, Units
from pipeline.runs.load_model import load_trained
from pipeline.runs.metrics import MODEL_NAME, TASK_NAME, TENSORBOARD_NAME, WEIGHTS_NAME, examples_per_second
from pipeline.runs.record import SCHEMA_VERSION, SKIPPED, RunRecord, host_facts, names, recorded_settings, write_record
from pipeline.settings.training import MODELS, TrainSettings
from pipeline.streams.tf_data import InputStream
from pipeline.training.launch import TrainRequest
from pipeline.training.setup import EVALUATED_SPLITS, TrainingSetup, evaluation_streams
from pipeline.training.timing import peak_host_bytes

_logger = logging.getLogger(__name__)


def request_fields(request: TrainRequest, manifest: Mapping) -> dict:
    """Fields of the record from the request and the records' manifest."""
    initial, problem = request.initial, problem_of_records(manifest)
    task, splits, image = problem.task(manifest), manifest["splits"], manifest.get("image")
    stored = image and {
        **{name: image[name] for name in ("encoding", "resize", "store_side", "store_quality")},
        "image_size": image["size"],
        **dict(zip(("smallest_side", "median_side", "largest_side"), manifest["source"]["shorter_sides"], strict=True)),
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
        "chosen": {**manifest.get("chosen", {}), **request.chosen},
        "records": stored,
        "division": {
            "by": manifest["division"],
            "test_share": manifest["source"]["test_share"],
            "validation_share": manifest["identity"].get("settings", {}).get("validation_share"),
        },
        "input_shape": task.input_shape,
        "test_examples": splits["test"]["num_examples"] * task.predictions_per_example,
        **recorded_settings(request.settings),
        "experiment": request.experiment or request.requested_dataset,
        "origin": request.origin,
        **({"initial_weights_digest": initial.digest, "initial_run": initial.run} if initial else {}),
    }


def skipped_fields(settings: TrainSettings) -> dict:
    """Fields of the record of a skipped run."""
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


def result_fields(setup: TrainingSetup, epoch: int) -> dict:
    """Fields of the record of a finished run. ``epoch``, from 1, is the selected epoch."""
    history, stream, placement = setup.history, setup.stream, setup.placement
    rows = history.rows
    rate = examples_per_second(rows, history.compiling(), examples_per_epoch=stream.predictions_per_epoch)
    beginning = setup.beginning
    if (features_seconds := rows[0].get("features_seconds")) is not None:
        beginning = {**beginning, "features": "computed" if features_seconds else "read"}
    # An earlier process may have trained the last epoch.
    segment = history.segments[-1]
    saved = [setup.folder / name for name in (MODEL_NAME, WEIGHTS_NAME)]
    return {
        **setup.request_fields,
        **setup.used(),
        "hostname": segment["hostname"],
        "finished_on": setup.request_fields["hostname"] if history.restored == len(rows) else None,
        "beginning": beginning,
        "device_verified": all(each["device_verified"] for each in history.segments),
        "device_reason": segment["receipt"]["device_reason"],
        "mismatch": setup.receipt["mismatch"],
        "receipt": segment["receipt"],
        **host_facts(segment["receipt"]),
        "segments": history.segments,
        "outputs": setup.outputs,
        "steps_per_execution": setup.model.steps_per_execution,
        "steps_per_epoch": stream.steps_per_epoch,
        **{name: round(sum(row[name] for row in rows), 4) for name in ("train_seconds", "evaluation_seconds")},
        "first_epoch_seconds": rows[0]["train_seconds"],
        "examples_per_second": round(rate, 1),
        **{name: value for name, value in rows[epoch - 1].items() if name.startswith(EVALUATED_SPLITS)},
        "kept_epoch": epoch,
        "num_parameters": setup.model.count_params(),
        "num_trainable_parameters": sum(math.prod(weight.shape) for weight in setup.model.trainable_weights),
        "model_bytes": next(path.stat().st_size for path in saved if path.exists()),
        "epochs_restored": history.restored,
        "peak_host_bytes": peak_host_bytes(),
        "peak_device_bytes": placement.runtime.peak_device_bytes(placement.effective_device),
    }


def save_model(setup: TrainingSetup) -> None:
    """Write the weights and the model into the run's folder, or the task if only user code can build the model."""
    model, name, path = setup.model, setup.settings.model, setup.folder / MODEL_NAME
    # save_file restricts the file to its owner.
    (setup.folder / WEIGHTS_NAME).write_bytes(save(named_weights(model)))
    # Readers without this project cannot load its optimizers, so the file has none.
    if name in MODELS.builtin:
        trained = build_for_task(setup.task, name, setup.precision)
        trained.set_weights(model.get_weights())
        trained.save(path)
        return
    try:
        save_copy(model, path, setup.task.input_shape)
    # Keras raises many kinds for a model that it cannot save. A full disk is none of them.
    except Exception as error:
        if isinstance(error, OSError) or not is_subclassed(model):
            raise
        task = json.dumps({"task": asdict(setup.task)}, indent=1)
        (setup.folder / TASK_NAME).write_text(f"{task}\n", encoding="utf-8")


def augmented_accuracies(
    problem: Problem, model: keras.Model, evaluated: Mapping[str, InputStream], augmentation: str
) -> dict[str, float]:
    """Accuracies with test-time augmentation, as fields of the record. Empty for "none"."""
    accuracies = {}
    for split, stream in evaluated.items() if augmentation != "none" else ():
        evaluation = problem.evaluation
        accuracy = evaluation.metrics(model, evaluation.predict(model, stream, augmentation))["accuracy"]
        _logger.info("%s accuracy with test-time augmentation %s: %.4f", split.capitalize(), augmentation, accuracy)
        accuracies[f"{split}_tta_accuracy"] = accuracy
    return accuracies


def reevaluate(
    run: Path, records_folder: Path, test_time_augmentation: str, folder: Path, *, model: str = ""
) -> RunRecord:
    """Copy a published run into an empty folder and evaluate it with another test-time augmentation.

    ``model`` is the setting [Train] model, see ``load_trained``. DamagedArtifactError: the run has no model.
    """
    for entry in read_manifest(run)["files"]:
        (folder / entry["name"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / entry["name"], folder / entry["name"])
    trained = load_trained(run, model=model)
    # The saved model has no loss. Any loss serves, because only the accuracy is used.
    trained.model.compile(loss=keras.losses.SparseCategoricalCrossentropy())
    manifest = read_manifest(records_folder)
    streams = evaluation_streams(records_folder, manifest, 1, trained.record.seed)
    fields = {"test_tta_accuracy": None, "validation_tta_accuracy": None}
    fields |= augmented_accuracies(problem_of_records(manifest), trained.model, streams, test_time_augmentation)
    record = trained.record.model_copy(update={"test_time_augmentation": test_time_augmentation, **fields})
    write_record(folder, record)
    return record


class Summaries:
    """Writer of a run's TensorBoard logs. ``write_run`` closes the files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / TENSORBOARD_NAME
        self._writers = {name: tf.summary.create_file_writer(str(self._folder / name)) for name in ("train", "test")}

    def write_epoch(self, row: Mapping[str, float]) -> None:
        """Write the scalars of one epoch."""
        for name, prefix in (("train", ""), ("test", "test_")):
            with self._writers[name].as_default(step=row["epoch"]):
                for metric in ("loss", "accuracy"):
                    if (value := row[f"{prefix}{metric}"]) is not None:
                        tf.summary.scalar(f"epoch_{metric}", value)
        with self._writers["train"].as_default(step=row["epoch"]):
            tf.summary.scalar("epoch_learning_rate", row["learning_rate"])
            tf.summary.scalar("examples_per_second", row["examples_per_second"])

    def write_run(self, record: Mapping[str, object], images: Mapping[str, np.ndarray], units: Units) -> None:
        """Write the hyperparameters and images, then close the files.

        ``record`` has the settings, precision and fingerprint. ``images`` are uint8 (n, height, width, channels).
        """
        # With boto3, this takes a quarter of a second to import, and training can start without it.
        from tensorboard.plugins.hparams import api as hparams

        tuned = {name: record[name] for name in ("experiment", *names("setting"), "precision")}
        self._writers["run"] = writer = tf.summary.create_file_writer(str(self._folder))
        with writer.as_default(step=record["epochs"]):
            hparams.hparams_config(
                hparams=[hparams.HParam(name) for name in tuned],
                metrics=[
                    hparams.Metric("epoch_accuracy", group="test", display_name="test accuracy"),
                    hparams.Metric("epoch_loss", group="test", display_name="test loss"),
                    hparams.Metric("examples_per_second", group="train", display_name=units.rate),
                ],
            )
            hparams.hparams(tuned, trial_id=record["fingerprint"][:12])
            for name, tiles in images.items():
                tf.summary.image(name, tiles, max_outputs=len(tiles))
        for writer in self._writers.values():
            writer.close()
