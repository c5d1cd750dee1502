"""Results: comparisons as a table in the terminal, in results.json, and in docs/results.md, which is generated from it.

A run replaces the rows of its parts that were measured on the same kind of machine. All other rows stay.
"""

import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import jinja2
from rich.console import Console
from rich.table import Table

from pipeline import machine

# Parts by default, and parts that need more time, photographs or further packages.
PARTS = ("fit", "stream")
MORE_PARTS = ("records", "cold", "accuracy", "photographs", "features", "memory", "files", "remote", "experiments")
_HERE = Path(__file__).parent
_JSON = _HERE / "results.json"
PAGE = _HERE.parent / "docs" / "results.md"
_PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "apache-beam", "numpy", "torch", "grain")
# Processors with the same instruction sets have about the same speed per core.
_OF_THE_KIND = ("cpu_model", "granted_cores", "instruction_sets")


def show(comparisons: Sequence[Mapping]) -> None:
    """Print a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("#", "measured", "compared with", "result", "goal", "met"):
        table.add_column(heading, overflow="fold")
    for one in comparisons:
        table.add_row(*(one[key] for key in ("number", "what", "against")), result(one), goal(one), met(one))
    Console().print(table)


def write(part: str, comparisons: Sequence[Mapping], date: str) -> None:
    """Replace the rows of a part on this kind of machine, and write the page."""
    content = read()
    about = {
        "part": part,
        "date": date,
        "machine": machine.describe(),
        # Not every part needs all packages.
        "versions": {one.name: one.version for one in importlib.metadata.distributions() if one.name in _PACKAGES},
    }
    replaced = (part, _kind(about))
    kept = [one for one in content["comparisons"] if (one["part"], _kind(one)) != replaced]
    rows = sorted([*kept, *({**one, **about} for one in comparisons)], key=lambda one: (_sort_key(one), _kind(one)))
    text = json.dumps(content | {"comparisons": rows}, indent=2, ensure_ascii=False)
    _JSON.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


def read() -> dict:
    """Return results.json: "comparisons" of ``Comparison.to_json``, and "tables" of further measurements."""
    return json.loads(_JSON.read_text(encoding="utf-8"))


def page() -> str:
    """Render docs/results.md."""
    content = read()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {
        "result": result,
        "goal": goal,
        "met": met,
        "values": values,
        "processor": processor,
        "more_parts": MORE_PARTS,
    }
    text = environment.get_template("results.md.j2").render(content)
    return re.sub(r"\n{3,}", "\n\n", text)


def result(one: Mapping) -> str:
    """Median of the figures with their range, such as "1.35 times the images/s (1.2 to 1.4)"."""
    figures = one["figures"]
    spread = f" ({_number(min(figures))} to {_number(max(figures))})" if len(figures) > 1 else " (once)"
    return f"{_number(median(figures))} {one['figure']}{spread}"


def goal(one: Mapping) -> str:
    """The goal, such as "≥ 1.5"."""
    return f"{'≥' if one['at_least'] else '≤'} {_number(one['goal'])}"


def met(one: Mapping) -> str:
    """Return "yes" or "no"."""
    return "yes" if one["reached"] else "no"


def values(series: Sequence[float]) -> str:
    """Median of the values of all rounds. A dash for none."""
    return _number(median(series)) if series else "–"


def processor(one: Mapping) -> str:
    """Processor of a row, such as "AMD EPYC, AVX512_BF16"."""
    model = re.sub(r"\(R\)| Processor.*", "", one["machine"]["cpu_model"])
    return ", ".join([model, *(name.upper() for name in one["machine"]["instruction_sets"][-1:])])


def _sort_key(one: Mapping) -> tuple[int, str]:
    return int(re.match(r"\d+", one["number"])[0]), one["number"]


def _kind(one: Mapping) -> tuple:
    return tuple(str(one["machine"][key]) for key in _OF_THE_KIND)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
