"""The experiments: every settings file is valid, says what it is, and names what is there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import in_process
import pytest
from experiment_of import experiment_of
from luigi_process import PROJECT

from pipeline.errors import DamagedArtifactError, SettingsError
from pipeline.problems.image_classification import ImageClassification
from pipeline.settings.data import RecordsSettings, SourceSettings
from pipeline.settings.report import ReportSettings
from pipeline.settings.training import MODELS, RECIPES, TrainSettings
from tasks import config_files
from tasks.config_files import (
    PUBLISHED,
    description,
    experiments,
    settings_in,
)


def setup_module() -> None:
    global read_published
    from pipeline.report import read_published


FOLDER = PROJECT / "experiments"
FILES, PUBLISHED_FILES = experiments(), experiments(PUBLISHED)


def run(module, *args, **environment):
    return in_process.run("tasks", [module, *args], cwd=PROJECT, env={**os.environ, **environment})


def test_every_tutorial_is_there():
    assert {"cifar10", "mnist_dense", "mnist_cnn", "fashion_cnn", "flowers", "shakespeare"} <= set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_an_experiment_says_what_it_is_in_one_line_and_to_what_its_runs_belong(name):
    assert 20 < len(description(FILES[name])) <= 110
    assert experiment_of(FILES[name]) in FILES


# One process for all. It imports Luigi once and forks for each experiment: tasks reads the variable on import.
SETTINGS_OF_EACH = """
import json, os, sys

os.environ["LUIGI_CONFIG_PARSER"] = "ini"
import luigi.configuration

for name in sys.argv[1:]:
    if (pid := os.fork()) == 0:
        os.environ["TENSORCRAFT_EXPERIMENT"] = name
        import tasks

        below = tasks.Report().inputs
        print(json.dumps([name, len(below), below[0].experiment_name(), tasks.Train().settings.model]), flush=True)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, name
"""


def test_the_settings_of_each_experiment_are_valid():
    """As Luigi reads them, and as the tasks pass them on."""
    done = subprocess.run(
        [sys.executable, "-c", SETTINGS_OF_EACH, *FILES], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, *_ in rows] == [*FILES]
    for name, runs, experiment, model in rows:
        assert runs >= 1
        assert experiment == experiment_of(FILES[name])
        train = settings_in([PROJECT / "config.ini", FILES[name]])["Train"]
        assert train["model"] == model
        assert train["model"] in MODELS
        assert train["training_recipe"] in RECIPES


def run_code(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, env={**os.environ, **environment}, capture_output=True, text=True
    )


@pytest.mark.parametrize("name", FILES)
def test_an_experiment_has_settings_that_are_there_and_stays_short(name):
    own, known = settings_in([FILES[name]]), settings_in([PROJECT / "config.ini"])
    assert all(set(own[section]) <= set(known[section]) for section in own)
    assert len(FILES[name].read_text().splitlines()) <= 40


@pytest.mark.parametrize("name", sorted({*FILES} - {"cifar10"}))
def test_only_the_default_experiment_may_use_a_placeholder(name):
    """Minutes or hours on other images, beside figures of the real ones."""
    assert settings_in([FILES[name]])["Source"]["origin"] == "tfds"


def test_the_experiment_of_the_default_has_the_values_that_are_chosen_for_its_dataset():
    own, known = settings_in([FILES["cifar10"]]), settings_in([PROJECT / "config.ini"])
    assert own.pop("Experiment") == {"name": "cifar10"}
    assert own["Source"] == {"dataset": known["Source"]["dataset"]}
    assert {known["Train"][name] for name in own["Train"]} == {"auto"}
    chosen = ImageClassification().chosen(TrainSettings(), (32, 32, 3), num_examples=50_000)
    assert own["Train"] | {"augment": ""} == {name: str(value) for name, value in chosen.items()}


@pytest.mark.parametrize("name", [name for name in FILES if "global_batch_sizes" in FILES[name].read_text()])
def test_the_settings_of_one_run_give_a_run_of_the_sweep(name):
    """`make export` and `make verify-determinism` would train one more."""
    own = settings_in([FILES[name]])
    assert int(own["Train"]["global_batch_size"]) in json.loads(own["Report"]["global_batch_sizes"])


@pytest.mark.parametrize("name", PUBLISHED_FILES)
def test_published_results_are_valid_and_list_facts_not_stated(name):
    assert name in {experiment_of(path) for path in FILES.values()}
    rows = read_published(PUBLISHED_FILES[name], name)
    assert rows
    for row in rows:
        assert row.source
        assert row.not_stated, "no tutorial says all"
        assert row.model in ("", *MODELS)


def test_the_published_figures_are_those_that_were_published():
    rows = [row for name, path in PUBLISHED_FILES.items() for row in read_published(path, name)]
    of = {name: [row for row in rows if row.experiment == name] for name in PUBLISHED_FILES}
    by_batch = [row for row in of["mnist_cnn"] if row.microseconds_per_example]
    assert [(row.effective_device, row.epoch_seconds, row.microseconds_per_example) for row in by_batch] == [
        *(("gpu", 6, 94), ("gpu", 5, 82), ("gpu", 4, 79)),
        *(("tpu", 6, 97), ("tpu", 3, 58), ("tpu", 2, 37)),
    ]
    assert [row.wrong for row in of["mnist_cnn"] if row.wrong] == [168]
    assert [row.train_seconds for row in of["fashion_cnn"]] == [102, 196, 11164]
    assert [row.test_accuracy for row in of["flowers"]] == [0.712, 0.81, 0.864, 0.968]
    assert [(row.train_seconds, row.test_accuracy) for row in of["cifar10"]] == [
        *((167.84, 0.7242), (34.66, 0.7336), (30.42, 0.7227)),
    ]
    assert [row.test_loss for row in of["shakespeare"] if row.test_loss] == [1.88, 1.4697]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"val_acuracy": 0.9}, "val_acuracy"),
        ({"test_accuracy": 71.2}, "test_accuracy"),
        ({"train_seconds": 0}, "train_seconds"),
        ({"train_seconds": None}, "expected a metric"),
        ({"epochs": -1}, "epochs"),
        ({"scenario": ""}, "scenario"),
    ],
)
def test_an_unknown_published_metric_is_refused_by_name(tmp_path, changes, named):
    row = {"scenario": "GPU", "requested_device": "gpu", "effective_device": "gpu", "train_seconds": 3.0, **changes}
    path = tmp_path / "x.published.json"
    path.write_text(json.dumps({"datasets": ["mnist"], "sources": [{"title": "a page", "rows": [row]}]}))
    with pytest.raises(DamagedArtifactError, match=named):
        read_published(path, "x")


@pytest.mark.parametrize("module", ["status", "doctor", "clean-stale"])
def test_an_unknown_experiment_is_refused_naming_the_nearest_and_all_there_are(module):
    done = run(module, TENSORCRAFT_EXPERIMENT="flower")
    assert done.returncode == SettingsError.exit_code
    assert "Did you mean 'flowers'?" in done.stderr
    assert "mnist_dense" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["../config", "flowers.published", "/etc/passwd"])
def test_an_invalid_file_name_is_no_experiment(name, monkeypatch):
    monkeypatch.setenv(config_files.EXPERIMENT_VARIABLE, name)
    with pytest.raises(SettingsError, match="experiment: expected one of cifar10"):
        config_files.check()


def test_flags_override_an_experiment_and_a_file_of_ones_own_overrides_it_too(tmp_path):
    own = tmp_path / "own.ini"
    own.write_text("[Train]\nepochs = 7\n")
    code = "import tasks; train = tasks.Train(); print(train.model, train.epochs, train.global_batch_size)"
    done = run_code(code, TENSORCRAFT_EXPERIMENT="mnist_dense", LUIGI_CONFIG_PATH=str(own))
    assert done.stdout.split() == ["mnist_dense", "7", "512"]
    done = run_code(code, LUIGI_CONFIG_PATH=str(FILES["mnist_dense"]))
    assert done.stdout.split() == ["mnist_dense", "5", "512"], "with Luigi alone"
    root = ("--Storage-root", str(tmp_path / "root"))
    done = run("status", *root, "--Train-model", "resnet", TENSORCRAFT_EXPERIMENT="mnist_dense")
    assert "got 'resnet'" in done.stderr


def test_the_list_says_what_each_is():
    done = run("experiments")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert set(lines) == set(FILES)
    assert all(description(FILES[name]) in line for name, line in lines.items())


def test_a_label_is_a_name():
    from pipeline.settings.storage import ExperimentSettings

    assert ExperimentSettings(name="flowers-2").name == "flowers-2"
    for name in ("a/b", "-x", "x" * 65, "two words"):
        with pytest.raises(SettingsError, match=r"\[Experiment\] name"):
            ExperimentSettings(name=name)


def test_a_file_that_is_none_of_settings_is_refused_by_its_name(tmp_path):
    path = Path(tmp_path, "x.ini")
    path.write_text("epochs = 3\n")
    with pytest.raises(SettingsError, match=r"x\.ini: no settings file"):
        settings_in([path])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xef\xbb\xbf[Train]\nepochs = 1\n", "no settings file in UTF-8"),
        (b"[Train\nepochs = 1\n", "no settings file in UTF-8"),
        (b"[Train]\nmodel = \xff\n", "no settings file in UTF-8"),
        (b"[Source]\npath = /a%b\n", r"[Source] path: expected %% for a percent sign, got '/a%b'"),
        (
            b"[Train]\nepochs = 1\n[Train]\nseed = 1\n",
            "section 'Train' already exists. Write each section, such as [Train], once",
        ),
        (b"[DEFAULT]\nepochs = 1\n", "unknown section [DEFAULT]. Move its settings to their own sections."),
        (b"[core]\nworkers = two\n", "[core] workers: invalid literal for int() with base 10: 'two'. Change it in"),
        (b"[Train]\nepochs = ${NOPE}\n", "[Train] epochs: Config refers to a nonexisting environment variable NOPE."),
    ],
    ids=["mark", "bracket", "latin-1", "percent", "twice", "default", "luigi's", "variable"],
)
def test_a_broken_file_of_ones_own_is_one_line_and_not_a_traceback(tmp_path, content, words):
    own = tmp_path / "own.ini"
    own.write_bytes(content)
    done = run("status", LUIGI_CONFIG_PATH=str(own))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(own) in done.stderr
    assert words in done.stderr


def test_the_settings_of_each_section_make_its_settings():
    """The types that the sections have in the dataclasses, without Luigi."""
    for path in FILES.values():
        sections = settings_in([path])
        assert SourceSettings(dataset=sections["Source"]["dataset"])
        assert RecordsSettings(image_size=int(sections.get("Records", {}).get("image_size", 0)))
        train = sections["Train"]
        assert TrainSettings(
            model=train["model"], training_recipe=train["training_recipe"], augment=train.get("augment", "")
        )
        report = sections.get("Report", {})
        assert ReportSettings(
            **{name: json.loads(value) for name, value in report.items() if name == "global_batch_sizes"}
        )
