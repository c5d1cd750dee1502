"""The documents: every file that they link to or list exists, and the README is short."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

PROJECT = Path(__file__).resolve().parent.parent
PAGES = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]


def layout() -> list[str]:
    """The paths in the layout of CONTRIBUTING.md. Those of an indented line are below the last folder."""
    block = re.search(r"## Layout\n\n```text\n(.*?)```", (PROJECT / "CONTRIBUTING.md").read_text(), re.DOTALL)[1]
    paths, folder = [], ""
    for line in block.splitlines():
        names = re.split(r"\s{2,}", line.strip())[0].split()
        folder = folder if line.startswith(" ") else names[0]
        paths += [folder + name if line.startswith(" ") else name for name in names]
    return paths


def test_the_layout_names_what_there_is():
    listed = {*layout()}
    assert not [path for path in listed if not (PROJECT / path).exists()]
    packages = {f"pipeline/{path.parent.name}/" for path in (PROJECT / "pipeline").glob("*/__init__.py")}
    assert packages <= listed


def test_the_guide_for_contributors_names_files_and_registries():
    text = (PROJECT / "CONTRIBUTING.md").read_text()
    paths = [path for path in re.findall(r"`((?:pipeline|tasks|tests)/[^`]*)`", text) if "<" not in path]
    assert not [path for path in paths if not (PROJECT / path).exists()]
    registries = re.findall(r"`([A-Z]+)` in `([^`]+)`", text)
    assert len(registries) >= 8
    assert not [name for name, path in registries if f"{name} = Registry(" not in (PROJECT / path).read_text()]


@pytest.mark.parametrize("page", [*PAGES, *sorted((PROJECT / "docs").rglob("*.md"))], ids=lambda page: page.name)
def test_linked_files_exist(page):
    tokens = [one for token in MarkdownIt().parse(page.read_text()) for one in token.children or ()]
    targets = [str(one.attrs.get("href") or one.attrs.get("src") or "") for one in tokens]
    files = {unquote(urlsplit(target).path) for target in targets if not urlsplit(target).scheme}
    assert not [file for file in files if not (page.parent / file).exists()]


def test_the_readme_has_at_most_1500_words():
    assert len((PROJECT / "README.md").read_text().split()) <= 1_500
