"""``make predict MODEL=… IMAGES=…``: a run's labels and probabilities for a folder of images."""

import argparse
import contextlib
import logging
from pathlib import Path

from pipeline.artefacts import layout
from pipeline.artefacts.manifest import read_manifest
from pipeline.errors import DamagedArtefactError, SettingsError
from tasks.commands import command
from tasks.process import console
from tasks.records import Records
from tasks.stage import Stage
from tasks.storage import root_folder

_logger = logging.getLogger(__name__)


def parser() -> argparse.ArgumentParser:
    """The command's own arguments, which ``make`` passes on though nobody named them."""
    own = command.parser(
        "predict",
        "Labels and probabilities for each image below a folder, as Parquet and CSV.",
        usage='make predict MODEL=<run> IMAGES=<folder> [OUTPUT=<folder>] [ARGS="--Records-runner ..."]',
    )
    own.add_argument("model", type=command.named(f"{command.A_RUN},"), help=command.A_RUN)
    own.add_argument("images", type=command.named("the folder of images"), help="the folder of images")
    own.add_argument("--output", default="predictions", help="the folder of the result (predictions)")
    return own


def main(arguments: argparse.Namespace, stages: list[Stage]) -> int:
    """Predict, and say where the result is."""
    run = command.run_folder("MODEL", arguments.model)
    images, output = Path(arguments.images).expanduser(), Path(arguments.output).expanduser()
    if not images.is_dir():
        raise SettingsError(f"IMAGES: expected a folder of images, got {arguments.images!r}")
    from pipeline.runs.metrics import MODEL_NAME
    from pipeline.runs.record import read_record

    record, records = read_record(run), next(stage for stage in stages if isinstance(stage, Records))
    if not (run / MODEL_NAME).is_file():
        raise SettingsError(f"MODEL: {run} holds no {MODEL_NAME}: its status is {record.status!r}")
    manifest = _records_of(record.records_fingerprint)
    with console.quiet_imports():
        from pipeline.predict import predict
    found = predict(
        run,
        images,
        output,
        resize=manifest["image"]["resize"],
        label_names=manifest["label_names"],
        settings=records.settings,
    )
    if found["errors"]:
        _logger.warning("%d of %d images could not be decoded: see column error", found["errors"], found["images"])
    print(f"{found['images']:,} images: {output / 'predictions.parquet'}, {output / 'predictions.csv'}")
    return 0


def _records_of(fingerprint: str) -> dict:
    """The manifest of the records that a run was trained on: it says how images reached their size.

    Raises:
        SettingsError: they are gone.
    """
    place = root_folder() / layout.RECORDS
    for folder in place.glob("[!.]*"):
        with contextlib.suppress(DamagedArtefactError):
            if (manifest := read_manifest(folder))["fingerprint"] == fingerprint:
                return manifest
    raise SettingsError(
        f"MODEL: the records {fingerprint[:12]} it was trained on, which say how its images were made, are not in "
        f"{place}. Rebuild them with the settings of that run (make pipeline)."
    )


if __name__ == "__main__":
    command.run(main, parser())
