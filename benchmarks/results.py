"""Results: comparisons as a table at the terminal, as RESULTS.md and as results.json.

A run of some parts replaces their lines and leaves the others as they were, with their date.
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

_HERE = Path(__file__).parent
_JSON = _HERE / "results.json"
_PACKAGES = ("tensorflow", "keras", "tensorflow-datasets", "apache-beam", "numpy", "torch")


def show(comparisons: Sequence[Mapping]) -> None:
    """Print a table."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("#", "ours", "against", "figure", "spread", "goal", ""):
        table.add_column(heading, overflow="fold")
    for one in comparisons:
        table.add_row(one["number"], one["what"], one["against"], *_verdict(one))
    Console().print(table)


def write(part: str, comparisons: Sequence[Mapping], date: str) -> None:
    """Put a part's comparisons in the place of those that were there."""
    about = {
        "machine": machine.describe(),
        # Not every part needs each of them.
        "versions": {one.name: one.version for one in importlib.metadata.distributions() if one.name in _PACKAGES},
    }
    kept = [one for one in _read() if one["part"] != part]
    measured = [{**one, "part": part, "date": date, **about} for one in comparisons]
    ordered = sorted([*kept, *measured], key=lambda one: (int(re.match(r"\d+", one["number"])[0]), one["number"]))
    content = json.dumps({"schema_version": 2, "comparisons": ordered}, indent=2, ensure_ascii=False)
    _JSON.write_text(content + "\n", encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"verdict": _verdict, "series": series}
    text = environment.get_template("RESULTS.md.j2").render(comparisons=ordered, setups=_setups(ordered))
    (_HERE / "RESULTS.md").write_text(text, encoding="utf-8")


def series(values: Sequence[float]) -> str:
    """The median, and the least and the greatest where there are several."""
    if not values:
        return "–"
    if len(values) == 1:
        return _figure(values[0])
    return f"{_figure(median(values))} ({_figure(min(values))} to {_figure(max(values))})"


def _setups(comparisons: Sequence[Mapping]) -> list[dict]:
    """The machines and versions that rows were measured with, each once, with the numbers of their rows."""
    setups: list[dict] = []
    for one in comparisons:
        about = {"machine": one["machine"], "versions": one["versions"]}
        same = next((setup for setup in setups if setup["about"] == about), None)
        if same is None:
            setups.append(same := {"about": about, "numbers": []})
        same["numbers"].append(one["number"])
    return setups


def _verdict(one: Mapping) -> tuple[str, str, str, str]:
    spread = "once" if len(one["figures"]) == 1 else f"{_figure(min(one['figures']))} to {_figure(max(one['figures']))}"
    goal = f"{'≥' if one['at_least'] else '≤'} {_figure(one['goal'])}"
    return f"{_figure(one['median'])} {one['figure']}", spread, goal, "reached" if one["reached"] else "missed"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def _read() -> list[dict]:
    return json.loads(_JSON.read_text(encoding="utf-8"))["comparisons"] if _JSON.exists() else []
