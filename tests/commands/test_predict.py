"""Predictions of a folder of images, by a network that was trained here."""

import csv
import json
import os
import shutil

import numpy as np
import pytest
from luigi_process import Luigi
from PIL import Image
from report_runs import SKIPPED, write_run

from pipeline.errors import BusyError, SettingsError
from pipeline.predict import Job
from pipeline.settings.data import RecordsSettings
from tasks.cli import dispatch


def setup_module() -> None:
    global _parts_folder, keras, predict, pyarrow
    import keras
    import pyarrow.parquet

    from pipeline.predict.job import _parts_folder, predict


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


def predictions(run, images, folder, **settings):
    found = predict(Job(str(run), LABELS), images, folder, RecordsSettings(**settings))
    return found, pyarrow.parquet.read_table(folder / "predictions.parquet").to_pylist()


@pytest.mark.parametrize("run", ["softmax", None], ids=["probabilities", "logits"], indirect=True)
def test_each_image_has_its_label_and_probabilities_in_order_of_its_path(run, images, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.predict.job._BLOCK_FILES", 40)
    found, rows = predictions(run, images, tmp_path / "out")
    assert found == {"files": 152, "errors": 1}
    assert [row["path"] for row in rows] == sorted(row["path"] for row in rows)
    for row in rows:
        if row["path"] == "notes.txt":
            assert row["error"] == "not a JPEG, PNG, BMP, GIF, WebP, TIFF or AVIF image"
            assert row["label"] is row["probability"] is row["probability of dark"] is None
            continue
        dark = row["path"] != "gray.png" and int(row["path"][-7:-4]) % 2
        assert (row["label"], row["error"]) == ("dark" if dark else "light", None)
        assert row["probability"] == max(row["probability of dark"], row["probability of light"]) > 0.5
        assert row["probability of dark"] + row["probability of light"] == pytest.approx(1)


def test_the_csv_file_holds_the_same_and_nothing_is_left_behind(run, images, tmp_path):
    _, rows = predictions(run, images, tmp_path / "out")
    with (tmp_path / "out" / "predictions.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert [(row["path"], row["label"] or None) for row in read] == [(row["path"], row["label"]) for row in rows]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"predictions.parquet", "predictions.csv"}


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
        predict(job, tmp_path / "images", tmp_path / views, RecordsSettings())
        (row,) = pyarrow.parquet.read_table(tmp_path / views / "predictions.parquet").to_pylist()
        found[views] = row["probability of light"]
    assert found["none"] > 0.99
    assert found["flip"] == pytest.approx((found["none"] + 0.5) / 2, abs=0.3)
    assert found["flip"] < 0.99


def test_a_problem_that_predicts_no_files_is_named(run, images, tmp_path):
    with pytest.raises(SettingsError, match=r"MODEL: expected .*, got a run of 'gone'\. Install the package"):
        predict(Job(str(run), LABELS, problem="gone"), images, tmp_path / "out", RecordsSettings())
    assert not (tmp_path / "out").exists()


def test_a_single_image_is_predicted_and_the_help_says_so(run, images, tmp_path, capsys):
    found, (row,) = predictions(run, images / "gray.png", tmp_path / "out")
    assert (found, row["path"], row["label"]) == ({"files": 1, "errors": 0}, "gray.png", "light")
    with pytest.raises(SystemExit):
        dispatch(["predict", "--help"])
    assert "image or text, or a folder of them" in capsys.readouterr().out


def test_an_empty_folder_is_refused(run, tmp_path):
    (tmp_path / "images").mkdir()
    with pytest.raises(SettingsError, match="IMAGES: expected a folder of images"):
        predictions(run, tmp_path / "images", tmp_path / "out")


def test_a_link_out_of_the_folder_is_refused_by_the_name_that_the_command_has_for_it(run, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "out").symlink_to("/etc")
    with pytest.raises(SettingsError, match="IMAGES: expected a folder without links to other folders") as refusal:
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


def test_leftovers_of_a_killed_process_are_removed_and_two_at_once_are_refused(run, images, tmp_path):
    parts = tmp_path / "out" / ".parts"
    parts.mkdir(parents=True)
    (parts / "000000000000.parquet").write_bytes(b"half")
    with _parts_folder(tmp_path / "out"), pytest.raises(BusyError, match="another process"):
        predictions(run, images, tmp_path / "out")
    assert predictions(run, images, tmp_path / "out")[0]["files"] == 152
    assert not parts.exists()


def test_runs_are_listed_with_their_differences_and_the_newest_is_latest(tmp_path, tiny_tfds):
    luigi = Luigi(tmp_path / "root", tiny_tfds)
    write_run(luigi.root / "runs" / "cnn-aa11", seed=0, epochs=2, test_accuracy=0.738)
    write_run(luigi.root / "runs" / "cnn-bb22", seed=0, epochs=12, finished_at="2026-03-02T09:30:00+00:00")
    write_run(luigi.root / "runs" / "cnn-cc33", **SKIPPED, finished_at="2026-03-03T09:30:00+00:00")
    placeholder = {"dataset": "synthetic", "requested_dataset": "cifar10"}
    write_run(luigi.root / "runs" / "made-dd44", **placeholder, finished_at="2026-03-04T09:30:00+00:00")
    (tmp_path / "out").mkdir()
    earlier = tmp_path / "out" / "predictions.csv"
    earlier.write_text("earlier")

    def refused(run):
        done = luigi.command("predict", run, str(tmp_path), "--output", str(tmp_path / "out"))
        assert done.returncode == 2
        assert f"{earlier} is the result of an earlier command. This command did not change it." in done.stderr
        assert earlier.read_text() == "earlier"
        return done.stderr

    # The newest run first.
    assert (
        refused("cnn")
        .rstrip()
        .endswith(
            "got 'cnn'. Pass its folder, the start of its name or fingerprint, or latest for the newest on real "
            "data. Matches:\n"
            "  cnn-bb22  2026-03-02 09:30 UTC  cifar10  73.80%  epochs 12\n"
            "  cnn-aa11  2026-03-01 10:00 UTC  cifar10  73.80%  epochs 2"
        )
    )
    assert "got 'none'" in (listed := refused("none"))
    assert "Runs:\n  made-dd44" in listed
    assert f"got {luigi.root / 'runs' / 'cnn-bb22'} with the status" in refused("latest")
    for name in ("cnn-aa11", "cnn-bb22"):
        shutil.rmtree(luigi.root / "runs" / name)
    assert "got 'latest'. Pass its folder" in refused("latest")


@pytest.mark.slow
def test_the_command_uses_the_views_of_the_run_or_the_requested_views(first_run, tmp_path, rng):
    luigi = first_run.copy(tmp_path / "own")
    record = next(luigi.root.glob("runs/*/run.json"))
    (tmp_path / "images").mkdir()
    Image.fromarray(rng.integers(256, size=(32, 32, 3), dtype=np.uint8)).save(tmp_path / "images" / "a.png")

    def predicted(*flags, **changes):
        record.write_text(json.dumps(json.loads(record.read_text()) | changes))
        arguments = [record.parent.name, str(tmp_path / "images"), "--output", str(tmp_path / "out"), *flags]
        done = luigi.command("predict", *arguments)
        if done.returncode:
            return done.returncode, done.stderr, None
        table = pyarrow.parquet.read_table(tmp_path / "out" / "predictions.parquet")
        return 0, done.stdout, table["probability of cat"].to_pylist()

    _, said, once = predicted(test_time_augmentation="none")
    assert "seen" not in said
    _, said, twice = predicted(test_time_augmentation="flip")
    images = tmp_path / "images"
    assert f"Predicted 1 of 1 images from {images} with {record.parent.name}, with the mean of 2 views" in said
    assert once != twice
    assert predicted("--test-time-augmentation", "none")[2] == once
    code, said, _ = predicted("--test-time-augmentation", "flip", problem="next_token")
    assert (code, "--test-time-augmentation: expected a run on images" in said) == (2, True)


@pytest.mark.slow
def test_the_command_predicts_with_a_run_and_names_what_is_wrong(first_run, tmp_path, images):
    run = next(first_run.root.glob("runs/*")).name
    done = first_run.command("predict", run, str(images), "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert f"Predicted 151 of 152 images from {images} with {run} to " in done.stdout
    assert "1 of 152 images have no prediction" in done.stderr
    assert "seen" not in done.stdout
    plain = pyarrow.parquet.read_table(tmp_path / "out" / "predictions.parquet")
    labels = plain["label"].to_pylist()
    assert set(labels) - {None} <= {
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    }
    for arguments, said in (
        (["", str(images)], "or latest, got nothing"),
        (["nothing", str(images)], "expected a run in"),
        ([run, "/no"], "IMAGES: expected a file or a folder of images, got '/no'"),
    ):
        refused = first_run.command("predict", *arguments)
        assert (refused.returncode, said in refused.stderr) == (2, True), refused.stderr
