"""Predictions of a folder of images, by a network that was trained here."""

import csv
import json
import os
import re
import shutil
from collections import Counter, defaultdict

import numpy as np
import pytest
from luigi_process import Luigi
from PIL import Image
from report_runs import SKIPPED, write_run

from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.errors import SettingsError
from pipeline.predict import Job
from pipeline.settings.data import RecordsSettings


def setup_module() -> None:
    global keras, predict, pyarrow
    import keras
    import pyarrow.parquet

    from pipeline.predict.job import predict


LABELS = ("dark", "light")


@pytest.fixture(scope="module")
def run(request, tmp_path_factory):
    """A run whose network knows bright images from dark ones without having learned it."""
    folder = tmp_path_factory.mktemp("runs") / "a"
    activation = getattr(request, "param", "softmax")
    write_run(folder, outputs="probabilities" if activation else "logits")
    layers = keras.layers
    network = keras.Sequential(
        [
            keras.Input((16, 16, 3), dtype="uint8"),
            layers.Rescaling(1 / 127.5, offset=-1),
            layers.GlobalAveragePooling2D(),
            layers.Dense(2, activation=activation, kernel_initializer="zeros"),
        ]
    )
    network.layers[-1].set_weights([np.array([[-1.0, 1.0]] * 3, np.float32), np.zeros(2, np.float32)])
    network.save(folder / "model.keras")
    return folder


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    (folder / "below").mkdir(parents=True)
    for number in range(150):
        level = 40 if number % 2 else 210
        Image.new("RGB", (20 + number, 40), (level,) * 3).save(folder / "below" / f"{number:03d}.jpg")
    Image.new("L", (30, 30), 220).save(folder / "gray.png")
    (folder / "notes.txt").write_text("no image")
    return folder


def predictions(run, images, folder, *more, **settings):
    found = predict(Job(str(run), LABELS), [str(images), *more], folder, RecordsSettings(**settings))
    rows = pyarrow.parquet.read_table(folder / "predictions.parquet").to_pylist()
    below = f"{images}/"
    return (found["files"], found["errors"]), [row | {"path": row["path"].removeprefix(below)} for row in rows]


@pytest.mark.parametrize("run", ["softmax", None], ids=["probabilities", "logits"], indirect=True)
def test_each_image_has_its_label_and_probabilities_in_order_of_its_path(run, images, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.predict.job._BLOCK_FILES", 40)
    found, rows = predictions(run, images, tmp_path / "out")
    assert found == (152, 1)
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)
    for row in rows:
        if row["path"] == "notes.txt":
            assert row["error"] == "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image"
            assert row["label"] is row["second_label"] is row["probability"] is row["probability of dark"] is None
            continue
        dark = row["path"] != "gray.png" and int(row["path"][-7:-4]) % 2
        labels = ("dark", "light") if dark else ("light", "dark")
        assert (row["label"], row["second_label"], row["error"]) == (*labels, None)
        assert row["probability"] == max(row["probability of dark"], row["probability of light"]) > 0.5
        assert row["probability of dark"] + row["probability of light"] == pytest.approx(1)


def test_the_csv_file_holds_the_same_and_nothing_is_left_behind(run, images, tmp_path):
    _, rows = predictions(run, images, tmp_path / "out")
    with (tmp_path / "out" / "predictions.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    paths = [row["path"].removeprefix(f"{images}/") for row in read]
    assert paths == [row["path"] for row in rows]
    assert [row["label"] or None for row in read] == [row["label"] for row in rows]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"predictions.parquet", "predictions.csv"}


def test_predictions_are_counted_with_the_sizes_of_their_images_if_the_job_is_watched(run, images, tmp_path):
    own = shutil.copytree(run, tmp_path / "runs" / "a")
    predict(Job(str(own), LABELS), [str(images)], tmp_path / "out", RecordsSettings())
    assert not (tmp_path / "watched").exists()
    for _ in range(2):
        predict(Job(str(own), LABELS, is_watched=True), [str(images)], tmp_path / "out", RecordsSettings())
    counts = defaultdict(Counter)
    # The date may change meanwhile. With another clock, the gRPC of the next test would wait for a minute.
    for day in (tmp_path / "watched" / "a").glob("*.json"):
        for name, numbers in json.loads(day.read_text())["counts"].items():
            counts[name].update(numbers)
    assert counts["label"] == {"dark": 2 * 75, "light": 2 * 76}
    assert sum(counts["confidence"].values()) == 2 * 151
    assert counts["size"] == {"16 to 31 pixels": 2 * 13, "32 to 63 pixels": 2 * 138}


def test_threads_and_blocks_change_nothing(run, images, tmp_path, monkeypatch):
    _, rows = predictions(run, images, tmp_path / "a")
    monkeypatch.setattr("pipeline.predict.job._BLOCK_FILES", 7)
    threads = "--direct_running_mode=multi_threading --direct_num_workers=2"
    _, again = predictions(run, images, tmp_path / "b", runner_options=threads)
    assert [(row["path"], row["label"]) for row in again] == [(row["path"], row["label"]) for row in rows]


def test_a_network_for_images_that_are_no_square_takes_those_of_its_size(tmp_path):
    write_run(tmp_path / "a", outputs="probabilities", input_shape=(16, 24, 3))
    layers = [keras.Input((16, 24, 3), dtype="uint8"), keras.layers.Flatten(), keras.layers.Dense(2, "softmax")]
    keras.Sequential(layers).save(tmp_path / "a" / "model.keras")
    (tmp_path / "images").mkdir()
    for name, size in {"a": (24, 16), "b": (24, 24), "c": (16, 24), "d": (24, 16)}.items():
        Image.new("RGB", size).save(tmp_path / "images" / f"{name}.png")
    _, rows = predictions(tmp_path / "a", tmp_path / "images", tmp_path / "out")
    assert [row["label"] is not None for row in rows] == [True, False, False, True]
    assert rows[1]["error"] == "the image has 24 by 24 pixels, but the model requires 24 by 16"


def test_an_image_is_predicted_once_per_requested_view(tmp_path):
    write_run(tmp_path / "a", outputs="probabilities", input_shape=(16, 16, 3))
    network = keras.Sequential(
        [
            keras.Input((16, 16, 3), dtype="uint8"),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Flatten(),
            keras.layers.Dense(2, "softmax", kernel_initializer="zeros"),
        ]
    )
    # It looks at the left half alone.
    kernel = np.zeros((16, 16, 3, 2), np.float32)
    kernel[:, :8, :, 1] = 0.1
    network.layers[-1].set_weights([kernel.reshape(-1, 2), np.zeros(2, np.float32)])
    network.save(tmp_path / "a" / "model.keras")
    picture = np.zeros((16, 16, 3), np.uint8)
    picture[:, :8] = 255
    (tmp_path / "images").mkdir()
    Image.fromarray(picture).save(tmp_path / "images" / "a.png")
    found = {}
    for views in ("none", "flip"):
        job = Job(str(tmp_path / "a"), LABELS, views=views)
        predict(job, [str(tmp_path / "images")], tmp_path / views, RecordsSettings())
        (row,) = pyarrow.parquet.read_table(tmp_path / views / "predictions.parquet").to_pylist()
        found[views] = row["probability of light"]
    assert found["none"] > 0.99
    assert found["flip"] == pytest.approx((found["none"] + 0.5) / 2, abs=0.3)
    assert found["flip"] < 0.99


def test_a_problem_that_predicts_no_files_is_named(run, images, tmp_path):
    with pytest.raises(SettingsError, match=r"--model: expected .*, got a run of 'gone'\. Install the package"):
        predict(Job(str(run), LABELS, problem="gone"), [str(images)], tmp_path / "out", RecordsSettings())
    assert not (tmp_path / "out").exists()


def test_files_and_folders_are_predicted_together_each_file_once(run, images, tmp_path, monkeypatch):
    monkeypatch.chdir(images)
    found, rows = predictions(run, "gray.png", tmp_path / "out", "below", "gray.png", "gone.png", str(images))
    assert found == (1 + 150 + 1 + 152, 2)
    assert [row["path"] for row in rows[:2]] == ["gray.png", "below/000.jpg"]
    assert [row["label"] for row in rows[:2]] == ["light", "light"]
    assert rows[151]["error"] == "cannot be read: No such file or directory"
    assert rows[152]["path"] == f"{images}/below/000.jpg"


def test_an_empty_folder_is_refused(run, tmp_path):
    (tmp_path / "images").mkdir()
    with pytest.raises(SettingsError, match=r"FILES: expected files, got '.*images'\. They contain no file\."):
        predictions(run, tmp_path / "images", tmp_path / "out")


def test_a_link_out_of_the_folder_is_refused_by_the_name_that_the_command_has_for_it(run, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "out").symlink_to("/etc")
    with pytest.raises(SettingsError, match="FILES: expected a folder without links to other folders") as refusal:
        predictions(run, tmp_path / "images", tmp_path / "out")
    assert "[Source]" not in str(refusal.value)


def test_names_that_are_no_text_and_files_that_are_none_have_their_rows(run, tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    Image.new("RGB", (30, 30), (250, 250, 250)).save(folder / "a.png")
    os.rename(folder / "a.png", os.fsencode(folder) + b"/b\xff.png")
    os.mkfifo(folder / "pipe.jpg")
    _, rows = predictions(run, folder, tmp_path / "out")
    assert [(row["path"], row["label"]) for row in rows] == [("b\\xff.png", "light"), ("pipe.jpg", None)]
    assert rows[1]["error"] == "cannot be read: no regular file"


def test_only_the_predictions_stay_in_the_folder_and_the_next_ones_replace_them(run, images, tmp_path):
    assert predictions(run, images, tmp_path / "out")[0] == (152, 1)
    assert predictions(run, images / "gray.png", tmp_path / "out")[0] == (1, 0)
    assert sorted(os.listdir(tmp_path / "out")) == ["predictions.csv", "predictions.parquet"]


def test_runs_are_listed_with_their_differences_and_have_names_for_the_best_and_the_newest(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path / "root", tiny_tfds)
    write_run(luigi.root / "runs" / "cnn-aa11", seed=0, epochs=2, test_accuracy=0.75)
    write_run(luigi.root / "runs" / "cnn-bb22", seed=0, epochs=12, finished_at="2026-03-02T09:30:00+00:00")
    write_run(luigi.root / "runs" / "cnn-cc33", **SKIPPED, finished_at="2026-03-03T09:30:00+00:00")
    placeholder = {"dataset": "synthetic", "requested_dataset": "cifar10", "test_accuracy": 0.99}
    write_run(luigi.root / "runs" / "made-dd44", **placeholder, finished_at="2026-03-04T09:30:00+00:00")
    flowers = {"dataset": "flowers", "requested_dataset": "flowers", "experiment": "flowers", "test_accuracy": 0.9}
    write_run(luigi.root / "runs" / "other-ee55", **flowers, finished_at="2026-03-01T08:30:00+00:00")

    def refused(*run):
        done = luigi.command("predict", str(tmp_path), *run)
        assert done.returncode == 2
        return done.stderr

    def used(*run):
        (name,) = re.findall(r"got .*/runs/(\S+) with the status", refused(*run))
        return name

    # The newest run first.
    assert (
        refused("--model", "cnn")
        .rstrip()
        .endswith(
            "got 'cnn'. Pass the folder of a run, the beginning of its name or fingerprint, latest, best, judged, or "
            "champion. Runs:\n"
            "  cnn-bb22  2026-03-02 09:30 UTC  cifar10  73.80%\n"
            "  cnn-aa11  2026-03-01 10:00 UTC  cifar10  75.00%"
        )
    )
    assert "got 'none'" in (listed := refused("--model", "none"))
    assert "Runs:\n  made-dd44" in listed
    assert used() == used("--model", "best") == "cnn-aa11"
    assert used("--model", "latest") == "cnn-bb22"
    for name in ("cnn-aa11", "cnn-bb22"):
        shutil.rmtree(luigi.root / "runs" / name)
    # The experiment has no run on its own data any more.
    assert used() == "other-ee55"
    shutil.rmtree(luigi.root / "runs" / "other-ee55")
    assert "got 'best'. Pass the folder" in refused()


@pytest.mark.slow
def test_the_command_uses_the_views_of_the_run_or_the_requested_views(first_run, tmp_path, rng):
    luigi = first_run.copy(tmp_path / "own")
    record = next(luigi.root.glob("runs/*/run.json"))
    (tmp_path / "images").mkdir()
    Image.fromarray(rng.integers(256, size=(32, 32, 3), dtype=np.uint8)).save(tmp_path / "images" / "a.png")

    def predicted(*flags, **changes):
        record.write_text(json.dumps(json.loads(record.read_text()) | changes))
        identity = read_manifest(record.parent)["identity"]
        for name in ("manifest.json", "verified.json"):
            (record.parent / name).unlink()
        write_manifest(record.parent, stage="Train", identity=identity, details={})
        arguments = [str(tmp_path / "images"), "--output", str(tmp_path / "out"), *flags]
        done = luigi.command("predict", *arguments)
        if done.returncode:
            return done.returncode, done.stderr, None
        table = pyarrow.parquet.read_table(tmp_path / "out" / "predictions.parquet")
        return 0, done.stdout, table["probability of cat"].to_pylist()

    _, _, once = predicted(test_time_augmentation="none")
    _, said, twice = predicted(test_time_augmentation="flip")
    assert f"Predicted 1 of 1 images with {record.parent.name}, with the mean of 2 views (flip), to " in said
    assert once != twice
    assert predicted("--test-time-augmentation", "none")[2] == once
    code, said, _ = predicted("--test-time-augmentation", "flip", problem="next_token")
    assert (code, "--test-time-augmentation: expected a run on images" in said) == (2, True)


@pytest.mark.slow
def test_the_command_shows_the_first_predictions_and_why_files_have_none(first_run, tmp_path, images):
    luigi = first_run.copy(tmp_path / "own")
    run = next(luigi.root.glob("runs/*")).name
    done = luigi.command("predict", str(images), str(images / "gone.png"), "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert f"Predicting with the run {run}." in done.stderr
    reason = "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image"
    listed = f"2 of 153 images have no prediction:\n  {images}/notes.txt: {reason}\n  {images}/gone.png: cannot be read"
    assert listed in done.stderr
    csv_path = tmp_path / "out" / "predictions.csv"
    head, _, *rows = done.stdout.splitlines()
    assert head.split() == ["path", "label", "probability", "second", "label"]
    table = pyarrow.parquet.read_table(tmp_path / "out" / "predictions.parquet")
    first = table.slice(0, 1).to_pylist()[0]
    path, *others = rows[0].split()
    # A long path goes on in the next line.
    assert f"{images}/below/000.jpg".startswith(path)
    assert others == [first["label"], f"{first['probability']:.1%}", first["second_label"]]
    assert sum(bool(re.search(r" \d+\.\d% ", row)) for row in rows) == 20
    *_, more, empty, total = rows
    assert (more, empty) == (f"… and 131 more in {csv_path}", "")
    assert total.startswith(f"Predicted 151 of 153 images with {run} to ")
    for arguments, said in (
        (["--model", "", str(images)], "--model: expected a value, got nothing"),
        (["--model", "nothing", str(images)], "expected a run in"),
        (["/no"], "FILES: expected images, got 1 unusable file."),
    ):
        refused = luigi.command("predict", *arguments)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
