"""The text of 30 error messages. Each names the setting or file, the value received and the remedy.

After an intended change, run ``pytest tests/golden --snapshot-update`` and review the difference.
"""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from pipeline.errors import PLACES, PipelineError
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.settings.report import ReportSettings
from pipeline.settings.storage import StorageSettings
from pipeline.settings.training import TrainSettings

DATA = Path(__file__).parent / "data"
RUN = sorted((DATA / "runs").iterdir())[0]


def changed_run(folder: Path, name: str, change: Callable[[str], str]) -> Path:
    """A copy of a run in which the text of one file is changed."""
    copy = shutil.copytree(RUN, folder / "run")
    (copy / name).write_text(change((copy / name).read_text(encoding="utf-8")), encoding="utf-8")
    return copy


def changed_field(folder: Path, name: str, **fields: object) -> Path:
    """A copy of a run in which fields of one JSON file are changed."""
    return changed_run(folder, name, lambda text: json.dumps(json.loads(text) | fields))


def read_run(folder: Path) -> None:
    from pipeline.runs.record import read_record

    read_record(folder)


def read_metrics_of(folder: Path) -> None:
    from pipeline.runs.metrics import METRICS_NAME, read_metrics

    read_metrics(folder / METRICS_NAME)


def read_manifest_of(folder: Path) -> None:
    from pipeline.artifacts.manifest import read_manifest

    read_manifest(folder)


def check_files_of(folder: Path, change: Callable[[Path], object]) -> None:
    """Publish two files, change one, and check them against the manifest."""
    from pipeline.artifacts.manifest import check_contents, check_files, read_manifest, write_manifest

    for name in ("one.bin", "two.bin"):
        (folder / name).write_bytes(b"0123456789")
    write_manifest(folder, stage="Records", identity={}, details={})
    change(folder / "two.bin")
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    check_contents(folder, manifest)


def resolve(folder: Path, dataset: str, path: Path, **settings: object) -> None:
    from pipeline import sources

    sources.resolve(SourceSettings(dataset=dataset, path=str(path), **settings), folder)


def images(folder: Path, *, bad: int = 0) -> Path:
    """A folder of four images of two labels, of which the first few are no images."""
    for number in range(4):
        path = folder / "images" / ("night", "day")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if number < bad:
            path.write_bytes(b"not an image")
        else:
            Image.new("RGB", (8, 8)).save(path)
    return folder / "images"


def table(folder: Path, *rows: tuple[str, ...]) -> Path:
    """A CSV file beside a folder of images."""
    images(folder)
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return folder / "table.csv"


def one_label(folder: Path) -> Path:
    shutil.rmtree(images(folder) / "day")
    return folder / "images"


MESSAGES: dict[str, Callable[[Path], object]] = {
    "setting: not a model": lambda _: TrainSettings(model="baseline_cn"),
    "setting: not a module": lambda _: TrainSettings(model="no_such_package.networks:build"),
    "setting: epochs out of range": lambda _: TrainSettings(epochs=0),
    "setting: batch and replicas": lambda _: TrainSettings(global_batch_size=100, replicas=3),
    "setting: augment": lambda _: TrainSettings(augment="flip, blur:3"),
    "setting: freeze": lambda _: TrainSettings(freeze="conv_(1"),
    "setting: label smoothing": lambda _: TrainSettings(label_smoothing=1.0),
    "setting: coordinator": lambda _: TrainSettings(coordinator_address="localhost:84700"),
    "setting: runner": lambda _: RecordsSettings(runner="FnApiRuner"),
    "setting: runner options": lambda _: RecordsSettings(runner_options="--job_name='open"),
    "setting: validation share": lambda _: RecordsSettings(validation_share=1.0),
    "setting: dataset": lambda _: SourceSettings(dataset="../cifar10"),
    "setting: path without need": lambda _: SourceSettings(path="photographs"),
    "setting: path missing": lambda _: SourceSettings(dataset="folder"),
    "setting: report devices": lambda _: ReportSettings(devices=("cpu", "gp")),
    "setting: storage root": lambda _: StorageSettings(root="s3://bucket/data"),
    "source: no such folder": lambda tmp: resolve(tmp, "folder", tmp / "nothing"),
    "source: one label": lambda tmp: resolve(tmp, "folder", one_label(tmp)),
    "source: images that cannot be decoded": lambda tmp: resolve(tmp, "folder", images(tmp, bad=1)),
    "source: too many of them": lambda tmp: resolve(tmp, "folder", images(tmp, bad=2), on_bad_example="skip"),
    "source: column missing": lambda tmp: resolve(tmp, "table", table(tmp, ("photo", "label"), ("a.png", "day"))),
    "source: empty table": lambda tmp: resolve(tmp, "table", table(tmp, ("path", "label"))),
    "artifact: no manifest": lambda tmp: read_manifest_of(tmp),
    "artifact: not a manifest": lambda tmp: read_manifest_of(changed_run(tmp, "manifest.json", lambda _: "{")),
    "artifact: file missing": lambda tmp: check_files_of(tmp, Path.unlink),
    "artifact: file shorter": lambda tmp: check_files_of(tmp, lambda path: path.write_bytes(b"0")),
    "artifact: contents changed": lambda tmp: check_files_of(tmp, lambda path: path.write_bytes(b"9876543210")),
    "run: not JSON": lambda tmp: read_run(changed_run(tmp, "run.json", lambda text: text[:-10])),
    "run: field of another type": lambda tmp: read_run(changed_field(tmp, "run.json", epochs="five")),
    "run: no epochs": lambda tmp: read_metrics_of(changed_run(tmp, "metrics.jsonl", lambda _: "")),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_error_message(name, tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(PLACES, raising=False)
    with pytest.raises(PipelineError) as raised:
        MESSAGES[name](tmp_path)
    text = str(raised.value).replace(str(tmp_path), "<folder>")
    assert f"{type(raised.value).__name__}, exit code {raised.value.exit_code}: {text}" == snapshot


def test_there_are_thirty_messages():
    assert len(MESSAGES) == 30
