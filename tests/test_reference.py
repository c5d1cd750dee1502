"""The reference pages state what the code declares: commands, exit codes, models, training recipes and operations."""

import ast
import pkgutil
import re
from pathlib import Path

import pytest

from docs.reference import write_pages
from pipeline import errors
from pipeline.problems import PROBLEMS
from pipeline.problems.results import RESULTS
from pipeline.report.sections import SECTIONS
from pipeline.runs.record import RunRecord
from pipeline.settings.training import EXPORTERS, MODELS, OPERATIONS, RECIPES
from pipeline.sources.source import SOURCES
from tasks.__main__ import COMMANDS

PROJECT = Path(__file__).resolve().parent.parent
PAGES = PROJECT / "docs" / "reference"
# Success, and a process that a signal ended.
WITHOUT_ERROR = {0, 130}


def rows(page: str) -> dict[int, set[str]]:
    """Exit code → names of errors in the second column of the table."""
    found = re.findall(r"^\| (\d+) \| ([^|]*)\|", (PAGES / page).read_text(), re.MULTILINE)
    return {int(code): set(re.findall(r"`(\w+)`", names)) for code, names in found}


@pytest.mark.parametrize("page", [write_pages.COMMANDS_PAGE, write_pages.FORMATS_PAGE], ids=lambda page: page.name)
def test_the_page_is_as_make_config_writes_it(page):
    assert page.read_text(encoding="utf-8") == write_pages.written(page)


def test_the_page_of_formats_lists_every_field_of_a_run():
    page = write_pages.FORMATS_PAGE.read_text()
    assert [name for name in RunRecord.model_fields if f"`{name}`" not in page] == []


def test_every_command_has_its_help_on_the_page():
    page = write_pages.COMMANDS_PAGE.read_text()
    for name in COMMANDS.builtin:
        assert f"\n## {name}\n" in page
        assert f"usage: tensorcraft {name} " in page


def test_every_error_has_its_exit_code_on_the_page():
    declared: dict[int, set[str]] = {code: set() for code in WITHOUT_ERROR}
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.PipelineError) and error is not errors.PipelineError:
            declared.setdefault(error.exit_code, set()).add(name)
    assert rows("exit-codes.md") == declared


@pytest.mark.parametrize(
    ("heading", "names"),
    [("Models", MODELS.builtin), ("Training recipes", RECIPES.builtin), ("Augmentation", OPERATIONS)],
)
def test_the_settings_page_describes_every_name(heading, names):
    section = (PAGES / "settings.md").read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    described = {name.partition(":")[0] for name in re.findall(r"^\| `([\w:.]+)` \|", section, re.MULTILINE)}
    assert described - {"my_package.models", "my_package", "my_package.recipes", "keras.applications"} == set(names)


def test_the_page_of_the_python_api_lists_every_registry():
    page = (PAGES / "python-api.md").read_text()
    registries = (SOURCES, PROBLEMS, RESULTS, MODELS, RECIPES, EXPORTERS, SECTIONS, COMMANDS)
    assert {one.group for one in registries} == set(re.findall(r"^\| `(tensorcraft\.\w+)` \|", page, re.MULTILINE))


def test_the_functions_of_the_python_api_exist():
    page = (PAGES / "python-api.md").read_text()
    named = set(re.findall(r"`(pipeline(?:\.\w+)+)", page))
    assert len(named) > 10
    for name in named:
        pkgutil.resolve_name(name)


def texts() -> list[str]:
    """The texts of the code, with … in the place of values, and the Makefile."""
    found = [(PROJECT / "Makefile").read_text()]
    for path in (path for folder in ("pipeline", "tasks") for path in (PROJECT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def test_the_messages_on_the_page_of_problems_exist():
    page, known = (PROJECT / "docs" / "troubleshooting.md").read_text(), texts()
    headings = [
        code for line in re.findall(r"^### (.*)", page, re.MULTILINE) for code in re.findall(r"`([^`]+)`", line)
    ]
    pieces = {piece.strip(" ,:") for code in headings for piece in code.split("…")} - {""}
    assert sorted(piece for piece in pieces if not any(piece in text for text in known)) == []
    named = {name for name in re.findall(r"ERROR (\w+):", page) if not hasattr(errors, name)}
    assert not named
