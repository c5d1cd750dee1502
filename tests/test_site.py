"""The documentation builds as a site in strict mode, and none of its links is dead."""

import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"


def setup_module() -> None:
    pytest.importorskip("zensical")


class Page(HTMLParser):
    """The ids of a page, its links, and the addresses from which a browser loads the rest of it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in {"canonical", "next", "prev"}:
            self.loaded.append(values["href"])
        elif "src" in values:
            self.loaded.append(values["src"])


def listed_pages(entries: list) -> list[str]:
    """The pages of a navigation, sections included."""
    pages = []
    for entry in entries:
        for value in entry.values():
            pages += [value] if isinstance(value, str) else listed_pages(value)
    return pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    """The pages of the site, by path, built from a copy of the documents."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, folder / "docs")
    for name in ("zensical.toml", "CHANGELOG.md"):
        shutil.copy(PROJECT / name, folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, re.sub(r"\x1b\[[\d;]*m", "", done.stderr)
    root = folder / "build" / "site"
    return {path: Page(path) for path in root.rglob("*.html") if path.name != "404.html"}


def test_each_link_and_anchor_leads_somewhere(site):
    """The generator does not check the navigation, pictures and links to other files."""
    dead = []
    for path, page in site.items():
        for link in page.links + page.loaded:
            address, anchor = urldefrag(unquote(link))
            if re.match(r"[a-z]+:", address):
                continue
            target = (path.parent / address).resolve() if address else path
            if not target.is_file() or (anchor and target in site and anchor not in site[target].ids | {"__skip"}):
                dead.append(f"{path.name}: {link}")
    assert dead == []


def test_a_page_requests_nothing_from_another_server(site):
    for path, page in site.items():
        assert [address for address in page.loaded if "//" in address] == [], path.name


def test_the_navigation_lists_every_page_once():
    settings = tomllib.loads((PROJECT / "zensical.toml").read_text(encoding="utf-8"))
    pages = listed_pages(settings["project"]["nav"])
    assert len(pages) == len(set(pages))
    existing = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert set(pages) == existing


def test_a_list_begins_after_an_empty_line():
    """The generator takes a list directly below a paragraph for a part of the paragraph. Code hosts do not."""
    found = []
    for path in DOCS.rglob("*.md"):
        before, fenced = "", False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            is_item = re.match(r"([-*+]|1\.) ", line)
            if is_item and not fenced and before.strip() and not re.match(r"([-*+]|\d+\.) | ", before):
                found.append(f"{path.relative_to(DOCS)}:{number}: {line}")
            before = line
    assert found == []
