"""One declaration per setting: the Luigi parameter, the help text, config.ini, the docs and the identity follow."""

import configparser
import re
from typing import Annotated

import luigi
import pytest
from luigi.cmdline_parser import CmdlineParser
from luigi_process import PROJECT

from docs.reference import write_settings as reference
from pipeline.errors import SettingsError
from pipeline.registry import Registry
from pipeline.settings.schema import (
    NOT_IN_IDENTITY,
    SECRET,
    Settings,
    StageSettings,
    integer,
    number,
    one_of,
    registered,
    settings_of,
    text,
)
from tasks.commands.setup import commented


class ToySettings(StageSettings, section="Toy"):
    """A section of a test."""

    petals: Annotated[int, integer(1, 8)] = 5
    """Number of petals. See docs/how-to/own-data.md."""
    color: Annotated[str, one_of("red", "blue"), NOT_IN_IDENTITY] = "red"
    """Color of the petals, in 100% of them."""
    sizes: Annotated[tuple[float, ...], number(0, 1, "(]")] = ()
    """Sizes to draw."""
    address: Annotated[str, text("an address", r"https?://\S+"), SECRET] = ""
    """Secret address."""
    note: str = ""
    """Any text."""

    def check(self) -> None:
        if self.color == "blue" and self.petals > 6:
            raise SettingsError("no blue flower has more than 6 petals")


@pytest.fixture
def toy_task(monkeypatch):
    from luigi.task_register import Register

    from tasks.settings import Section

    monkeypatch.setattr(Register, "_reg", [*Register._reg])

    class Toy(Section, parameters=ToySettings):
        """Section [Toy]."""

    Toy.clear_instance_cache()
    yield Toy
    Toy.clear_instance_cache()


def test_a_setting_becomes_a_parameter_with_its_help_text(toy_task, capsys):
    with CmdlineParser.global_instance(["Toy", "--Toy-petals", "3", "--sizes", "1,0.5"]) as parser:
        toy = toy_task(sizes=parser.get_task_obj().sizes)
        assert (toy.petals, toy.color, toy.sizes, toy.time_limit_seconds) == (3, "red", (1.0, 0.5), 0)
        assert [type(size) for size in toy.sizes] == [float, float]
    with pytest.raises(SystemExit), CmdlineParser.global_instance(["Toy", "--help"]):
        pass
    shown = capsys.readouterr().out
    assert "Number of petals." in shown
    assert "own-data" not in shown
    assert "in 100% of them." in shown


def test_the_identity_leaves_out_what_is_marked(toy_task):
    significant = {name for name, parameter in toy_task.get_params() if parameter.significant}
    assert significant == {"petals", "sizes", "address", "note"}
    hidden = {
        name for name, one in toy_task.get_params() if one.visibility == luigi.parameter.ParameterVisibility.PRIVATE
    }
    assert hidden == {"address"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"petals": 9}, "[Toy] petals: expected an integer from 1 to 8, got 9. Change it in config.ini or pass --Toy-"),
        ({"color": "rad"}, "[Toy] color: expected one of red, blue, got 'rad'. Did you mean 'red'?"),
        ({"sizes": (0.5, 0)}, "[Toy] sizes: expected a number above 0 and up to 1, got 0."),
        ({"address": "ftp://me:word@host"}, "[Toy] address: expected an address, got 'something else'."),
        ({"color": "blue", "petals": 7}, "no blue flower has more than 6 petals"),
    ],
)
def test_a_setting_is_refused_by_its_rule(wrong, message):
    with pytest.raises(SettingsError) as refusal:
        ToySettings(**wrong)
    assert str(refusal.value).startswith(message)


def test_a_setting_is_a_line_of_the_settings_file_and_a_row_of_the_docs():
    written = "\n".join(reference.config_lines(ToySettings))
    parser = configparser.ConfigParser()
    parser.read_string(written)
    defaults = {setting.name: setting.parse(parser["Toy"][setting.name]) for setting in settings_of(ToySettings)}
    assert ToySettings(**defaults) == ToySettings()
    petals = "# Number of petals.\n# Must be an integer from 1 to 8.\npetals = 5\n"
    assert f"\n{petals}" in written
    rows = "\n".join(reference.table_lines(ToySettings)).splitlines()
    petals = "| `petals` | `5` | an integer from 1 to 8 | Number of petals. See [own-data](../how-to/own-data.md). |"
    assert petals in rows
    assert "| `note` |  |  | Any text. |" in rows


@pytest.mark.parametrize("path", reference.FILES, ids=lambda path: path.name)
def test_the_written_files_are_as_make_config_writes_them(path):
    assert path.read_text(encoding="utf-8") == reference.written(path)


def test_config_file_and_messages_name_no_targets_of_make():
    written = commented((PROJECT / "config.ini").read_text(encoding="utf-8"))
    assert not re.search(r"\bmake\b|docs/|EXTRA=|FORCE=|SCHEDULER=|EXPERIMENT=", written)
    targets = {*re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)}
    sources = [path for name in ("pipeline", "tasks") for path in (PROJECT / name).rglob("*.py")]
    target = re.compile(rf"\bmake ({'|'.join(targets - {'config'})})\b")
    # They name targets for a clone alone.
    allowed = {"optional_packages.py", "engine.py"}
    assert {path.name for path in sources if target.search(path.read_text("utf-8"))} == allowed


def test_every_section_of_a_task_is_written():
    import tasks

    declared = {name: task.parameters for name, task in vars(tasks).items() if hasattr(task, "parameters")}
    assert declared == {one.section: one for one in reference.SECTIONS}


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ("--Train-recipe", "--Train-training-recipe"),
        ("--Report-recipes", "--Report-training-recipes"),
        ("--recipes", "--Report-training-recipes"),
        ("--min-val-accuracy", "--Report-min-test-accuracy"),
    ],
)
def test_a_renamed_setting_is_refused_with_its_new_name(former, new):
    from tasks.settings import check_command_line

    with pytest.raises(SettingsError, match=rf"{former}\. Did you mean '{new}'\?"):
        check_command_line(["Report", former, "5"])


def test_every_default_and_example_is_valid():
    for settings in reference.SECTIONS:
        settings()
        for setting in settings_of(settings):
            assert setting.help.endswith("."), f"[{setting.section}] {setting.name}"
    assert registered(Registry("models", {"a": ""}), "x.y:z").problem(3) == ""


def test_a_section_needs_no_rules():
    assert [setting.name for setting in settings_of(ToySettings)][-1] == "time_limit_seconds"
    assert issubclass(ToySettings, Settings)


@pytest.mark.parametrize("text", ["[0,1", "0,1]", 'cpu"', '["cpu,gpu', "0 1", "a,,b"])
def test_a_list_that_was_cut_off_is_refused(text):
    sizes = next(setting for setting in settings_of(ToySettings) if setting.name == "sizes")
    with pytest.raises(SettingsError, match="a list such as"):
        sizes.parse(text)
