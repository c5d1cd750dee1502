"""Reevaluation: a published run evaluated with other views of each image, its weights as they are (training's aid)."""

import logging
import shutil
from pathlib import Path

import keras

from pipeline.artefacts.manifest import read_manifest
from pipeline.problems.find import problem_of_records
from pipeline.runs.record import RunRecord, write_record
from pipeline.runs.trained import load_trained
from pipeline.training import words
from pipeline.training.inputs import evaluation_streams

_logger = logging.getLogger(__name__)


def evaluate_again(
    run: Path, records_folder: Path, test_time_augmentation: str, folder: Path, *, model: str = ""
) -> RunRecord:
    """Copy a run's files into an empty folder, with the figures of another test-time augmentation in its record.

    Args:
        run: the published run's folder.
        records_folder: the records that it was trained on.
        test_time_augmentation: as [Train] has it.
        folder: where the files go.
        model: [Train] model of the present settings, see runs/trained.py.

    Returns:
        The record as it was written. All but the setting and its figures is as before.

    Raises:
        DamagedArtefactError: the run holds no network.
    """
    for entry in read_manifest(run)["files"]:
        (folder / entry["name"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / entry["name"], folder / entry["name"])
    trained, manifest = load_trained(run, model=model), read_manifest(records_folder)
    figures = {"val_tta_accuracy": None, "validation_tta_accuracy": None}
    if test_time_augmentation != "none":
        problem = problem_of_records(manifest)
        # It was saved without its loss. Of the figures only the accuracy is wanted.
        trained.model.compile(loss=keras.losses.SparseCategoricalCrossentropy())
        streams = evaluation_streams(records_folder, manifest, replicas=1, seed=trained.record.seed)
        accuracies = {
            name: problem.figures(trained.model, problem.predict(trained.model, stream, test_time_augmentation))[
                "accuracy"
            ]
            for name, stream in streams.items()
        }
        _logger.info("%s", words.with_test_time_augmentation(accuracies))
        figures |= {f"{name}_tta_accuracy": accuracy for name, accuracy in accuracies.items()}
    record = trained.record.model_copy(update={"test_time_augmentation": test_time_augmentation, **figures})
    write_record(folder, record)
    return record
