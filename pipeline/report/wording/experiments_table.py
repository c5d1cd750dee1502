"""Experiments' table: what a README says of them, as Markdown: a row for each network and recipe, the receipts below.

Of rows that repeat one another under other code the newest: the table says what there is now.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report.facts.scenarios import grouped
from pipeline.report.wording.devices import computed_in
from pipeline.report.wording.experiments import sections
from pipeline.report.wording.formats import mean_number, mean_percent, number, plain, plural, sentence
from pipeline.report.wording.rows import Row, counted, loss_in_nats, seen_several_times
from pipeline.report.wording.runs import inputs, network_and_recipe
from pipeline.runs.record import FINISHED, is_stand_in, names

_HEAD = (
    "| experiment | network / recipe | batch, epochs | training time, s | trained a second | on the test split | on |",
    "|---|---|---|--:|--:|--:|---|",
)


def format_experiments(report: Mapping[str, Any]) -> str:
    """The table, empty where no run has finished.

    Args:
        report: as `build_report` gives it.
    """
    finished = [row for row in report["scenarios"] if row["status"] == FINISHED and not is_stand_in(row)]
    if not finished:
        return ""
    lines, sources, machines = list(_HEAD), [], _Machines(report["runs"])
    for board in sections(report):
        mine = [row for row in finished if plain(row["experiment"]) == board["name"]]
        same = ("dataset", "input_shape", *names("setting", "hardware", "computation", repeated=False))
        # The newest of each is the first.
        newest = [group[0] for group in grouped(mine, same)]
        lines += [_line(board["name"], (*_ours(row), machines.of(row))) for row in reversed(newest)]
        for source in board["published"]:
            sources.append(source)
            lines += [_line(board["name"], _published(row, len(sources)), italic=True) for row in source["rows"]]
    return "\n".join([*lines, "", *_sources(sources), *machines.receipts(), ""])


def _ours(row: Mapping[str, Any]) -> tuple[str, ...]:
    what = [network_and_recipe(row), plain(row["augment"]), inputs(row)]
    how_often = plural(len(row["seeds"]), "run") + ", not made here" * bool(row["fetched_from"])
    first, *further = filter(None, [loss_in_nats(row), mean_percent(row["val_accuracy"], 2)])
    beside = [*further, seen_several_times(row), how_often, counted(row)]
    return (
        " / ".join(filter(None, what)),
        f"{number(row['global_batch_size'])}, {number(row['epochs'])}",
        mean_number(row["train_seconds"], 1),
        f"{mean_number(row['examples_per_second'])} {units_of_run(row).many}",
        f"{first} ({', '.join(filter(None, beside))})",
    )


def _published(row: Row, source: int) -> tuple[str, ...]:
    """A row by the number of its source, which stands below the table: titles would make the column too wide."""
    accuracy = f"{row.val_accuracy} ({row.counted})" if row.counted else row.val_accuracy
    note = f" ({row.device_note})" if row.device_note else ""
    what = f"published, source {source}: {', '.join([f'{row.label}{note}', *row.details[1:]])}"
    batch = f"{row.global_batch_size}, {row.epochs}"
    return what, batch, row.train_seconds, row.examples_per_second, accuracy, "elsewhere"


def _sources(sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """Where rows were published, by their numbers in the table, and what was left unsaid there."""
    named = [
        f"{place}. {_escaped(' '.join(filter(None, [sentence(source['title']), source['unsaid']])))}"
        for place, source in enumerate(sources, start=1)
    ]
    return ["Published elsewhere, not measured here:", "", *named, ""] if named else []


class _Machines:
    """What the rows were measured on, by the receipts of their runs; numbered in the order of the rows."""

    def __init__(self, runs: Sequence[Mapping[str, Any]]) -> None:
        self._runs = {run["fingerprint"]: run for run in runs}
        self._speeds: dict[str, list[float]] = {}

    def of(self, row: Mapping[str, Any]) -> str:
        """A row's machines, by their numbers."""
        for fingerprint in row["fingerprints"]:
            run = self._runs[fingerprint]
            speed = run["reference_flops_per_second"]
            self._speeds.setdefault(_machine(run), []).extend([speed / 1e9] if speed else [])
        places = {machine: place for place, machine in enumerate(self._speeds, start=1)}
        mine = dict.fromkeys(places[_machine(self._runs[one])] for one in row["fingerprints"])
        return f"machine {' and '.join(map(str, mine))}"

    def receipts(self) -> list[str]:
        """A line for each machine."""
        lines = [f"- machine {at}: {one}{_speeds(of)}" for at, (one, of) in enumerate(self._speeds.items(), start=1)]
        return ["Measured on:", "", *lines]


def _machine(run: Mapping[str, Any]) -> str:
    device = plain(run["device_name"] or run["effective_device"])
    cores = plural(run["granted_cores"], "core") if run["granted_cores"] else ""
    memory = f"{number(run['granted_memory_gib'])} GiB" if run["granted_memory_gib"] else ""
    verified = "device verified" if run["device_verified"] else "device not verified"
    fetched = f"fetched from {plain(run['fetched_from'])}" if run["fetched_from"] else ""
    # Some names have their cores in them already.
    cores = "" if cores and cores in device else cores
    return ", ".join(filter(None, [device, cores, memory, computed_in(run), verified, fetched]))


def _speeds(speeds: Sequence[float]) -> str:
    """How fast the receipt's probe found the machine: on a shared one that differs from run to run."""
    ends = dict.fromkeys(number(end) for end in (min(speeds), max(speeds))) if speeds else ()
    return f", {' to '.join(ends)} GFLOP/s by the receipt's probe" if ends else ""


def _line(name: str, cells: Sequence[str], *, italic: bool = False) -> str:
    """A line of the table; ``italic``: its first cell after the name, for what is not ours."""
    first, *others = map(_escaped, cells)
    return f"| {' | '.join([_escaped(name), f'*{first}*' if italic else first, *others])} |"


def _escaped(text: str) -> str:
    # What a run or a file of published figures says is untrusted.
    return re.sub(r"([\\`*\[|])", r"\\\1", html.escape(text, quote=False))
