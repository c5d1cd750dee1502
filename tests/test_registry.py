"""Registries: names that are built in, and names of packages from outside."""

import pytest

from pipeline.errors import SettingsError
from pipeline.problems import PROBLEMS, problem_of_records
from pipeline.problems.problem import NEUTRAL, units_of
from pipeline.problems.results import RESULTS, Results, results_of
from pipeline.registry import Registry
from pipeline.report.sections import SECTIONS
from pipeline.settings.training import EXPORTERS, MODELS, RECIPES, TrainSettings
from pipeline.sources.source import SOURCES
from tasks import __main__ as cli
from tasks.__main__ import COMMANDS

ALL = (COMMANDS, EXPORTERS, MODELS, PROBLEMS, RECIPES, RESULTS, SECTIONS, SOURCES)


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """Entry points of an installed package, for registries that are made from now on."""
    (tmp_path / "toy-1.dist-info").mkdir()
    (tmp_path / "toy-1.dist-info" / "METADATA").write_text("Name: toy\nVersion: 1\n")
    (tmp_path / "toy-1.dist-info" / "entry_points.txt").write_text(
        "[tensorcraft.models]\ntoy_dense = toy.models:dense\nbaseline_cnn = toy.models:other\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("registry", ALL, ids=lambda registry: registry.group)
def test_every_name_that_is_built_in_stands_for_something(registry):
    assert registry.group.startswith("tensorcraft.")
    assert list(registry)[: len(registry.builtin)] == list(registry.builtin)
    for name in registry.builtin:
        assert registry.load(name) is not None


def test_a_package_adds_names_and_replaces_none(outside):
    models = Registry("models", MODELS.builtin)
    assert models["toy_dense"] == "toy.models:dense"
    assert models["baseline_cnn"] == MODELS["baseline_cnn"]
    assert [*models] == [*MODELS.builtin, "toy_dense"]
    assert len(models) == len(MODELS.builtin) + 1
    assert models.outside_modules("baseline_cnn", "toy_dense", "unknown") == ("toy.models",)
    assert Registry("training_recipes", {}).outside_modules("toy_dense") == ()


def test_a_package_that_cannot_be_imported_is_named(outside):
    with pytest.raises(
        SettingsError, match=r"tensorcraft.models 'toy_dense': importing toy.models:dense raised Module"
    ):
        Registry("models", MODELS.builtin).load("toy_dense")


def test_a_command_that_cannot_be_imported_is_named_in_the_overview(outside, tmp_path, monkeypatch, capsys):
    (tmp_path / "toy-1.dist-info" / "entry_points.txt").write_text("[tensorcraft.commands]\ntoy = toy.commands:toy\n")
    monkeypatch.setattr(cli, "COMMANDS", Registry("commands", cli.COMMANDS.builtin))
    assert cli.dispatch(["--help"]) == 0
    overview = capsys.readouterr().out
    assert "  run  " in overview
    assert "(cannot be used) tensorcraft.commands 'toy': importing toy.commands:toy raised Module" in overview


def test_the_overview_shows_the_first_line_of_a_commands_docstring(capsys, monkeypatch):
    def add_digits() -> None:
        """Add two digits.

        The result is printed.
        """

    monkeypatch.setattr(cli.COMMANDS, "load", lambda name: add_digits)
    assert cli.dispatch(["--help"]) == 0
    assert "  run                 Add two digits.\n" in capsys.readouterr().out


def test_records_of_earlier_versions_have_the_problem_of_their_features():
    features = {"image": {}, "label": {}, "key": {}}
    assert problem_of_records({"feature_spec": features}).name == "image_classification"
    manifest = {"feature_spec": {"tokens": {}, "key": {}}, "label_names": ["a", "b"]}
    assert problem_of_records(manifest).name == "next_token"
    with pytest.raises(SettingsError, match="problem: expected one of image_classification, text_classification, "):
        problem_of_records({"problem": "gone"})


def test_a_problem_that_is_not_installed_is_shown_with_neutral_units():
    assert units_of("gone") == NEUTRAL
    assert results_of("gone") == Results()


def test_a_name_from_outside_is_a_setting_and_is_proposed(outside, monkeypatch):
    monkeypatch.setitem(MODELS.__dict__, "_outside", Registry("models", MODELS.builtin)._outside)
    assert TrainSettings(model="toy_dense").model == "toy_dense"
    with pytest.raises(SettingsError, match="Did you mean 'toy_dense'"):
        TrainSettings(model="toy_dens")
