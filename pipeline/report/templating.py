"""Templates of the report, with a Jinja environment per kind of escaping."""

import html
import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"


def escaped(value: object) -> str:
    """Escape text for Markdown and its tables, so that it adds no HTML, link, image, code or column."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


def render(template: str, **values: Any) -> str:
    """Render a template of the page (.html.j2) or of Markdown (.md.j2) with its values escaped."""
    return _environment(template.split(".")[-2]).get_template(template).render(values)


@cache
def _environment(kind: str) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=kind == "html",
        # Every expression of Markdown is escaped, except the JSON of the front matter, which tojson marks as safe.
        finalize=None if kind == "html" else lambda value: value if isinstance(value, Markup) else escaped(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
