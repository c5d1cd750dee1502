"""Evaluation of a published run with another test-time augmentation."""

import shutil
from pathlib import Path

import keras

from pipeline.artefacts.manifest import read_manifest
from pipeline.runs.record import RunRecord, write_record
from pipeline.runs.trained import load_trained
from pipeline.training.inputs import evaluation_streams
from pipeline.training.results import augmented_accuracies


def evaluate_again(
    run: Path, records_folder: Path, test_time_augmentation: str, folder: Path, *, model: str = ""
) -> RunRecord:
    """Copy a run into an empty folder, with the figures of another test-time augmentation in its record.

    Args:
        run: the published run's folder.
        records_folder: the records that it was trained on.
        test_time_augmentation: as [Train] has it.
        folder: the folder to write.
        model: [Train] model of the present settings, see ``load_trained``.

    Returns:
        The record as it was written.

    Raises:
        DamagedArtefactError: the run has no model.
    """
    for entry in read_manifest(run)["files"]:
        (folder / entry["name"]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(run / entry["name"], folder / entry["name"])
    trained, manifest = load_trained(run, model=model), read_manifest(records_folder)
    figures = {"val_tta_accuracy": None, "validation_tta_accuracy": None}
    if test_time_augmentation != "none":
        # The model was saved without its loss. Only the accuracy is used.
        trained.model.compile(loss=keras.losses.SparseCategoricalCrossentropy())
        streams = evaluation_streams(records_folder, manifest, replicas=1, seed=trained.record.seed)
        figures |= augmented_accuracies(trained.model, streams, test_time_augmentation)
    record = trained.record.model_copy(update={"test_time_augmentation": test_time_augmentation, **figures})
    write_record(folder, record)
    return record
