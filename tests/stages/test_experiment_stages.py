"""Experiments through the stages, as users run them: labels, what is left alone, each in a short form on real data."""

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from experiment_of import experiment_of
from luigi_process import FAST, PROJECT, TINY, Luigi
from scheduled import nightly

from pipeline.artifacts.manifest import read_manifest, write_manifest
from pipeline.problems import problem_of_records
from pipeline.settings.data import OF_FILES, SourceSettings
from pipeline.settings.training import TrainSettings
from pipeline.sources.tfds import Tfds
from tasks.config_files import experiments, settings_in


def setup_module() -> None:
    global choose_precision, compiled_model, kind_of_outputs, np, place, tf
    import numpy as np
    import tensorflow as tf

    from pipeline.hardware.placement import choose_precision, place
    from pipeline.models.build import kind_of_outputs
    from pipeline.training.model import compiled_model


FILES = experiments()
PREPARED = Path(os.environ.get("TFDS_DATA_DIR", "")).expanduser()
# Where datasets lie that are folders of images, beside the prepared ones: the flowers by their archive's name.
FOLDERS = {"tf_flowers": PREPARED.parent / "images" / "flower_photos"}
FEW, SMALL_BATCH = 120, 32
# One of each dataset, with images of any size, a text, a sweep, augmentation and test-time augmentation among them. The
# others differ in their network, recipe and numbers: of each a step is trained.
TRAINED = ("cifar10_90", "fashion_cnn_published", "flowers", "mnist_cnn_published", "shakespeare")
# Dataset → feature, shape of an example and number of labels.
EXAMPLES = {
    "cifar10": ("image", (32, 32, 3), 10),
    "mnist": ("image", (28, 28, 1), 10),
    "fashion_mnist": ("image", (28, 28, 1), 10),
    "tf_flowers": ("image", (192, 192, 3), 5),
    "tiny_shakespeare": ("tokens", (10,), 65),
}
TODAY = datetime.now(UTC).date().isoformat()


@pytest.fixture(scope="module")
def luigi(first_run, tmp_path_factory):
    """A root of this module's own on which the whole pipeline has run once."""
    return first_run.copy(tmp_path_factory.mktemp("experiments"))


def few_examples(name: str, folder: Path) -> list[str]:
    """Copies the first of the real examples of an experiment's dataset into a folder; flags that say where they are."""
    dataset = settings_in([PROJECT / "config.ini", FILES[name]])["Source"]["dataset"]
    if not os.environ.get("TFDS_DATA_DIR") or dataset in OF_FILES:
        pytest.skip("TFDS_DATA_DIR is not set, or the experiment is about files of one's own")
    if Tfds(SourceSettings(dataset=dataset, tfds_data_dir=str(PREPARED))).is_at_hand():
        return few_of_tfds(next((PREPARED / dataset).glob("*/dataset_info.json")).parent, folder)
    photographs = FOLDERS.get(dataset, folder / "none")
    if not photographs.is_dir():
        pytest.skip(f"{dataset} is neither under TFDS_DATA_DIR nor beside it")
    for path in photographs.glob("*/*.jpg"):
        place = folder / "flower_photos" / path.parent.name
        place.mkdir(parents=True, exist_ok=True)
        if sum(1 for _ in place.iterdir()) < 15:
            shutil.copyfile(path, place / path.name)
    return ["--Source-dataset", "folder", "--Source-path", str(folder / "flower_photos")]


def few_of_tfds(prepared: Path, folder: Path) -> list[str]:
    place = folder / prepared.parent.name / prepared.name
    place.mkdir(parents=True)
    for path in prepared.iterdir():
        if ".tfrecord" not in path.name:
            shutil.copyfile(path, place / path.name)
            continue
        with tf.io.TFRecordWriter(str(place / path.name)) as writer:
            for record in tf.data.TFRecordDataset(str(path)).take(FEW).as_numpy_iterator():
                writer.write(shortened(record))
    info = json.loads((place / "dataset_info.json").read_text())
    for split in info["splits"]:
        split["shardLengths"] = [str(min(FEW, int(length))) for length in split["shardLengths"]]
    (place / "dataset_info.json").write_text(json.dumps(info))
    return ["--Source-tfds-data-dir", str(folder)]


def shortened(record: bytes) -> bytes:
    """An Example as it is; of a text its beginning."""
    example = tf.train.Example.FromString(record)
    if "text" in example.features.feature:
        values = example.features.feature["text"].bytes_list.value
        values[0] = values[0][: 80 * FEW]
    return example.SerializeToString()


def test_an_experiment_of_each_dataset_is_trained():
    datasets = [
        {settings_in([PROJECT / "config.ini", FILES[name]])["Source"]["dataset"] for name in names}
        for names in (FILES, TRAINED)
    ]
    assert datasets[0] == datasets[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_an_experiment_runs_in_a_short_form_on_its_real_data(name, tmp_path):
    """One epoch on the first examples; of a sweep the first run."""
    (tmp_path / "few").mkdir()
    flags = few_examples(name, tmp_path / "few")
    settings = settings_in([FILES[name]])
    sweep = json.loads(settings.get("Report", {}).get("global_batch_sizes", "[]"))
    batch = str(min(int(settings["Train"].get("global_batch_size", SMALL_BATCH)), SMALL_BATCH))
    short = ["--Train-epochs", "1", "--Train-global-batch-size", batch]
    if sweep:
        short += ["--global-batch-sizes", json.dumps([min(sweep[0], SMALL_BATCH)])]
    luigi = Luigi(tmp_path, PREPARED)
    done = luigi(*short, *flags, TENSORCRAFT_EXPERIMENT=name)
    assert done.returncode == 0, done.stderr
    (run,) = luigi.report()["runs"]
    assert run["experiment"] == experiment_of(FILES[name])
    assert run["dataset"] == run["requested_dataset"], "no stand-in"
    assert run["dataset_verified"] is False, "a part of a dataset is not that dataset"
    assert run["test_accuracy"] is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FILES if name not in TRAINED])
def test_the_network_of_any_other_experiment_takes_a_step_by_its_recipe(name):
    asked = settings_in([PROJECT / "config.ini", FILES[name]])
    feature, shape, labels = EXAMPLES[asked["Source"]["dataset"]]
    manifest = {
        "problem": "next_token" if feature == "tokens" else "image_classification",
        "label_names": ["a"] * labels,
        "feature_spec": {feature: {"shape": shape}},
        feature: {"shape": shape},
    }
    names = ("model", "training_recipe", "scale_learning_rate")
    chosen = {key: asked["Train"][key] for key in names}
    settings = TrainSettings(device="cpu", epochs=1, global_batch_size=8, **chosen)
    placement = place(settings)
    task = problem_of_records(manifest).task(manifest)
    outputs = kind_of_outputs(task, settings.model, choose_precision(settings.precision, placement))
    model = compiled_model(manifest, settings, placement, 3, outputs=outputs)
    # Not traced as a graph, which takes most of the time.
    model.run_eagerly = True
    before = [variable.numpy() for variable in model.trainable_variables]
    inputs = np.random.default_rng(0).integers(0, labels, (8, *shape), np.uint8)
    loss, _ = model.train_on_batch(inputs, inputs if feature == "tokens" else np.arange(8) % labels)
    assert np.isfinite(loss)
    assert all((old != new.numpy()).any() for old, new in zip(before, model.trainable_variables, strict=True))


@pytest.mark.slow
def test_another_label_makes_nothing_again_and_what_is_another_experiments_stays(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    (mine,) = other.artifacts("runs")
    done = other.here("tasks", "Report", *FAST, "--Experiment-name", "mine")
    assert done.returncode == 0, done.stderr
    assert "Nothing to do" in done.stderr
    # A run of other settings that belongs to another experiment.
    labeled = ["--Experiment-name", "second", *FAST, *TINY]
    assert other.here("tasks", "Report", *labeled).returncode == 0
    report = other.report()
    assert [one["name"] for one in report["experiments"]] == ["second", "cifar10"]
    # What another's settings left is not this one's to remove.
    clean = other.command("clean-stale", "--yes", *labeled)
    assert clean.returncode == 0, clean.stderr
    assert len(other.artifacts("runs")) == 2
    # The other way round; its own that is not reached goes.
    clean = other.command("clean-stale", "--yes", *FAST, "--Train-seed", "5")
    assert mine not in other.artifacts("runs")
    assert len(other.artifacts("runs")) == 1


def interrupted(luigi: Luigi, *args: str) -> str:
    """Starts a run and kills it when its first checkpoint is there; the name of that folder."""
    process = luigi.start("--Train-epochs", "5000", *args)
    manifest = luigi.wait_for("checkpoints/*/epoch-*/manifest.json", process)
    process.kill()
    process.communicate()
    return manifest.parent.parent.name


@pytest.mark.slow
def test_inputs_of_an_interrupted_run_of_another_experiment_stay(luigi, tmp_path):
    """Neither clean-stale nor the retention of a schedule removes it."""
    other = luigi.copy(tmp_path)
    (mine,) = other.artifacts("runs")
    theirs = ["--Experiment-name", "second", "--Records-seed", "1", *FAST[2:], *TINY]
    waiting = interrupted(other, *theirs)
    # Another experiment is about to train on these.
    third = ["--Experiment-name", "third", "--Records-seed", "2", *FAST[2:]]
    assert other.here("tasks", "Records", *third).returncode == 0
    records = other.artifacts("records")
    assert len(records) == 3
    clean = other.command("clean-stale", *FAST)
    assert "0 artifacts" in clean.stdout
    # Of this experiment's runs the oldest goes, a run of another one stays.
    plant(other, mine, name="old", finished_at="2026-01-01T00:00:00+00:00")
    plant(other, mine, name="old-third", finished_at="2026-01-01T00:00:00+00:00", experiment="third")
    plant(other, mine, name="new-third", experiment="third")
    done = nightly(other, "--date", TODAY, "--Train-seed", "7", "--Storage-keep-runs", "1", *TINY)
    assert done.returncode == 0, done.stderr
    runs = other.artifacts("runs")
    assert "old" not in runs
    assert "old-third" in runs
    assert other.artifacts("records") == records
    assert (other.root / "checkpoints" / waiting).is_dir()
    # And its own experiment may remove it.
    clean = other.command("clean-stale", "--yes", *FAST, "--Experiment-name", "second")
    assert clean.returncode == 0, clean.stderr
    assert not (other.root / "checkpoints" / waiting).exists()
    assert len(other.artifacts("records")) == 2


def plant(luigi: Luigi, run: str, *, name: str, **changes) -> None:
    """A copy of a run as a run of its own, with these changes in its record."""
    folder = luigi.root / "runs" / name
    shutil.copytree(luigi.root / "runs" / run, folder)
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "fingerprint": name, **changes}))
    identity = {**read_manifest(folder)["identity"], "planted": name}
    (folder / "manifest.json").unlink()
    write_manifest(folder, stage="Train", identity=identity, details={})


@pytest.mark.slow
def test_each_experiment_has_dated_reports_of_its_own(luigi, tmp_path):
    other = luigi.copy(tmp_path)
    runs = other.artifacts("runs")
    assert nightly(other, "--date", TODAY).returncode == 0
    for _ in range(2):
        done = nightly(other, "--date", TODAY, "--Experiment-name", "mine")
        assert done.returncode == 0, done.stderr
    assert "the report exists" in done.stderr
    history = other.root / "report" / "history"
    assert (history / TODAY / "report.html").is_file()
    assert (history / "mine" / TODAY / "report.html").is_file()
    assert other.artifacts("runs") == runs
    verified = other.command("verify")
    assert verified.returncode == 0, verified.stdout
    assert str(history / "mine" / TODAY) in verified.stdout
