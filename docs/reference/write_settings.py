"""Writes config.ini and docs/reference/settings.md from the declared settings (``make config``).

Both files have a marked part that this module writes. The rest of them is written by hand.
"""

import posixpath
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from pipeline.settings import SECTIONS
from pipeline.settings.schema import Settings, settings_of

_PROJECT = Path(__file__).resolve().parent.parent.parent
_WIDTH = 120


def config_lines(section: type[Settings]) -> Iterator[str]:
    """The lines of config.ini for a section."""
    yield f"\n[{section.section}]"
    yield from _comment(section.__doc__)
    for setting in settings_of(section):
        yield from ("", *_comment(setting.plain_help))
        if setting.rule:
            yield from _comment(f"Must be {setting.rule.expected}.")
        yield f"{setting.name} = {setting.written(setting.default)}".rstrip()


def table_lines(section: type[Settings]) -> Iterator[str]:
    """The lines of docs/reference/settings.md for a section, with a Markdown table."""
    yield f"\n## [{section.section}]\n\n{_markdown(section.__doc__)}\n"
    yield "| setting | default | expected | meaning |\n|---|---|---|---|"
    for setting in settings_of(section):
        default = setting.written(setting.default)
        expected = _markdown(setting.rule.expected) if setting.rule else ""
        yield f"| `{setting.name}` | {default and f'`{default}`'} | {expected} | {_markdown(setting.help)} |"


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n(?=- |\n)", text)]


def _markdown(text: str) -> str:
    # In the code spans of a table, only a vertical bar needs an escape.
    pattern = r"(`[^`|]*`)|([|*<])"
    escaped = "<br>".join(
        re.sub(pattern, lambda found: found[1] or f"\\{found[2]}", paragraph) for paragraph in _paragraphs(text)
    )
    return re.sub(r"docs/([\w/-]+\.md)(#[\w-]+)?", _link, escaped)


def _link(name: re.Match) -> str:
    """A link from docs/reference/ to a page of docs/ or to a heading of it."""
    page, anchor = name[1], name[2] or ""
    target = "" if page == "reference/settings.md" else posixpath.relpath(page, "reference")
    return f"[{anchor.lstrip('#') or posixpath.basename(page).removesuffix('.md')}]({target}{anchor})"


def _comment(text: str) -> Iterator[str]:
    for paragraph in _paragraphs(text):
        indent = "#   " if paragraph.startswith("- ") else "# "
        yield from textwrap.wrap(paragraph, _WIDTH, initial_indent="# ", subsequent_indent=indent)


def written(path: Path) -> str:
    """The contents of config.ini or docs/reference/settings.md for the current declarations."""
    write = table_lines if path.suffix == ".md" else config_lines
    lines = [line for section in SECTIONS for line in write(section)]
    before, start, rest = re.split(r"(Written by make config[^\n]*\n)", path.read_text(encoding="utf-8"))
    _, end, after = re.split(r"(\n\S+ End of what make config writes)", rest)
    return before + start + "\n".join(lines) + "\n" + end + after


FILES = (_PROJECT / "config.ini", _PROJECT / "docs" / "reference" / "settings.md")

if __name__ == "__main__":
    for file in FILES:
        file.write_text(written(file), encoding="utf-8")
