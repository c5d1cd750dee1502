"""Rendering: the report's data to report.json, report.md and report.html.

What a run says about itself is untrusted and escaped where it is written: in HTML by jinja2's autoescape, in
Markdown by the environment's `finalize`, which no expression of a template can forget.
"""

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from pipeline.report.page import page_facts
from pipeline.report.wording import cards

_TEMPLATES = Path(__file__).parent / "templates"
# The page's own script, which its security policy knows by this digest: no other runs.
_SCRIPT = (_TEMPLATES / "report.js").read_text(encoding="utf-8")
_SCRIPT_DIGEST = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode("ascii")


def write_report(report: Mapping[str, Any], folder: Path) -> None:
    """Writes report.json, report.md and report.html into `folder`, making it where it is missing.

    And model-card.md and dataset-card.md, about the first run asked for that was finished.

    The same report gives the same bytes. Writes are plain: publishing the folder atomically is the caller's.

    Raises:
        OSError: The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = page_facts(report)
    _write(folder / "report.json", _json(report))
    _write(folder / "report.md", _render("report.md.j2", facts))
    _write(folder / "report.html", _render("report.html.j2", facts))
    _write_cards(report, folder)


def _write_cards(report: Mapping[str, Any], folder: Path) -> None:
    run = cards.carded_run(report)
    # Always written: a card of an earlier report must not stay beside one that has none.
    model = dataset = "No requested run has what this card describes.\n"
    if run:
        facts = cards.card_facts(run, report)
        model = cards.model_front_matter(_finite(run)) + _render("model-card.md.j2", facts)
    if run and run["evaluation"]:
        dataset = cards.dataset_front_matter(run) + _render("dataset-card.md.j2", facts)
    _write(folder / "model-card.md", model)
    _write(folder / "dataset-card.md", dataset)


def _render(template: str, facts: Mapping[str, Any]) -> str:
    for_html = template.endswith(".html.j2")
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        undefined=StrictUndefined,
        autoescape=for_html,
        finalize=None if for_html else _for_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(facts, script=_SCRIPT, script_digest=_SCRIPT_DIGEST)


def _for_markdown(value: Any) -> str:
    """Text that stays text in Markdown and its tables: no HTML, link, image, code or new column."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text)


def _json(report: Mapping[str, Any]) -> str:
    # Pictures are the page's; the runs' folders hold them.
    facts = {name: part for name, part in report.items() if name != "pictures"}
    return json.dumps(_finite(facts), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """The same data with null for every figure that JSON cannot hold."""
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: Path, text: str) -> None:
    # A lone surrogate, possible in JSON, has no UTF-8: better a "?" than no report.
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
