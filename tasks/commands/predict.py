"""The command ``predict``, which applies a trained model to images or texts."""

import argparse
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from pipeline.artifacts import layout
from pipeline.errors import SettingsError
from pipeline.predict import Job
from pipeline.problems import problem_class
from pipeline.problems.units import units_of
from pipeline.records.features import ImageForm
from pipeline.settings.training import TEST_TIME_AUGMENTATION
from pipeline.stage_process import in_child
from tasks.commands.command import A_RUN, argument, command, named, run_folder
from tasks.records import Records
from tasks.settings import root_folder
from tasks.stage import Stage
from tasks.status import manifests_in
from tasks.train import Train

_logger = logging.getLogger(__name__)


@command(
    argument("model", type=named(A_RUN), help=A_RUN),
    argument("files", type=named("file or folder"), help="image or text, or a folder of them"),
    argument(
        "--test-time-augmentation",
        choices=TEST_TIME_AUGMENTATION,
        help="views per image whose predictions are averaged (default: those of the run's evaluation)",
    ),
    argument("--output", default="predictions", help="folder for the result (default: predictions)"),
)
def predict(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Run a trained model on images or texts."""
    output = Path(arguments.output).expanduser()
    with _naming_earlier_predictions(output / "predictions.csv"):
        return _predict(arguments, output)


@contextlib.contextmanager
def _naming_earlier_predictions(csv: Path) -> Iterator[None]:
    """Log that a failed command left an earlier file unchanged."""
    modified = csv.exists() and csv.stat().st_mtime_ns
    try:
        yield
    except BaseException:
        if modified and csv.stat().st_mtime_ns == modified:
            _logger.warning("%s is the result of an earlier command. This command did not change it.", csv)
        raise


def _predict(arguments: argparse.Namespace, output: Path) -> int:
    run, files = run_folder("MODEL", arguments.model), Path(arguments.files).expanduser()
    from pipeline.problems.image_classification.test_time_augmentation import NONE, VIEWS
    from pipeline.runs.metrics import MODEL_NAME
    from pipeline.runs.record import read_record

    record = read_record(run)
    units = units_of(record.problem)
    if not (files.is_dir() or files.is_file()):
        hint = "" if files.exists() else " It does not exist."
        raise SettingsError(
            f"{units.files.upper()}: expected a file or a folder of {units.files}, got {arguments.files!r}.{hint}"
        )
    if not (run / MODEL_NAME).is_file():
        raise SettingsError(
            f"MODEL: expected a finished run with {MODEL_NAME}, got {run} with the status {record.status!r}."
        )
    if (asked := arguments.test_time_augmentation) and not problem_class(record.problem).can_augment:
        raise SettingsError(
            f"--test-time-augmentation: expected a run on images, got {asked!r} for {units.files}. Remove the flag."
        )
    views = asked or record.test_time_augmentation
    manifest = _records_of(record.records_fingerprint)
    job = Job(
        run=str(run),
        label_names=tuple(manifest["label_names"]),
        problem=record.problem,
        form=ImageForm.of_manifest(manifest),
        views=views,
        model=Train().model,
        value_range=tuple(manifest["source"]["value_range"]),
    )
    places = {"path": files, "folder": output, "settings": Records().settings}
    found = in_child("pipeline.predict.job:predict", {"job": job, **places})
    if found["errors"]:
        _logger.warning(
            "%d of %d %s have no prediction. The column error of the result has the reasons.",
            *(found["errors"], found["files"], units.files),
        )
    if found["files"] and found["errors"] == found["files"]:
        raise SettingsError(
            f"{units.files.upper()}: expected {units.files}, got {found['files']:,} unusable files in "
            f"{arguments.files}. The reasons are in {output / 'predictions.csv'}."
        )
    used = f"{found['files'] - found['errors']:,} of {found['files']:,} {units.files} from {files} with {run.name}"
    if views != NONE:
        used += f", with the mean of {len(VIEWS[views])} views ({views}),"
    print(f"Predicted {used} to {output / 'predictions.parquet'} and {output / 'predictions.csv'}.")
    return 0


def _records_of(fingerprint: str) -> dict:
    """The manifest of the records of a run."""
    place = root_folder() / layout.RECORDS
    for _, manifest in manifests_in(place):
        if manifest["fingerprint"] == fingerprint:
            return manifest
    raise SettingsError(
        f"MODEL: expected the run's records {fingerprint[:12]} in {place}, found none. Rebuild them with the settings "
        'of that run and "tensorcraft run".'
    )
