"""The table of results for a README: a row for each model and recipe, its sources and its machines."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Group, Table, Text, figures, words
from pipeline.report.data.scenarios import grouped
from pipeline.report.formats import Run
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import (
    counted,
    further,
    loss_in_nats,
    published_accuracy,
    published_sources,
    with_views,
)
from pipeline.runs.record import FINISHED, is_stand_in, names


def results(report: Report) -> list[Block]:
    """The table of a README: the newest row of each model and recipe, then the sources and the machines by number.

    Empty if no run has finished.
    """
    finished = [row for row in report.scenarios if row["status"] == FINISHED and not is_stand_in(row)]
    if not finished:
        return []
    groups, sources, machines = [], [], {}
    runs = {run["fingerprint"]: run for run in report.runs}
    for experiment in (one["experiment"] for one in report.experiments):
        mine = [row for row in finished if row["experiment"] == experiment]
        same = ("dataset", "input_shape", *names("setting", "hardware", "computation", repeated=False))
        rows = []
        for row in reversed([group[0] for group in grouped(mine, same)]):
            where = _number_machines([runs[one] for one in row["fingerprints"]], machines)
            rows.append(_our_cells(row, f"machine {' and '.join(map(str, where))}"))
        groups.append(Group("", rows))
        for (title, omissions), rows in published_sources(report, experiment).items():
            sources.append(f"{fmt.sentence(title)} {omissions}".strip())
            groups.append(Group("", [_published_cells(row, len(sources)) for row in rows], is_aside=True))
    columns = [
        *words("experiment", "network / recipe", "batch, epochs"),
        *figures("training time, s", "trained a second", "on the test split"),
        *words("on"),
    ]
    listed = [Text(text, kind=f"{place}.") for place, text in enumerate(sources, start=1)]
    lines = [
        Text(f"machine {place}: {machine}{_speeds(speeds)}", kind="-")
        for place, (machine, speeds) in enumerate(machines.items(), start=1)
    ]
    elsewhere = [Text("Published elsewhere, not measured here:"), *listed] if listed else []
    return [Table(columns, groups=groups), *elsewhere, Text("Measured on:"), *lines]


def _our_cells(row: Run, machine: str) -> list[str]:
    name = (fmt.model_and_recipe(row), fmt.plain(row["augment"]), fmt.inputs(row))
    how_often = fmt.plural(len(row["seeds"]), "run") + ", not made here" * bool(row["fetched_from"])
    first, *others = filter(None, [loss_in_nats(row), fmt.mean_percent(row["val_accuracy"], 2)])
    return [
        fmt.plain(row["experiment"]),
        " / ".join(filter(None, name)),
        f"{fmt.number(row['global_batch_size'])}, {fmt.number(row['epochs'])}",
        fmt.mean_number(row["train_seconds"], 1),
        f"{fmt.mean_number(row['examples_per_second'])} {units_of_run(row).many}",
        f"{first} ({fmt.joined(*others, with_views(row), how_often, counted(row))})",
        machine,
    ]


def _published_cells(row: Mapping[str, Any], source: int) -> list[str]:
    note = f" ({fmt.plain(row['device_note'])})" if row["device_note"] else ""
    name = fmt.joined(f"{fmt.plain(row['scenario'])}{note}", *further(row))
    accuracy = published_accuracy(row)
    mistakes = f" ({fmt.joined(*accuracy.notes)})" if accuracy.notes else ""
    return [
        fmt.plain(row["experiment"]),
        # By number: titles of sources would make the column too wide.
        f"published, source {source}: {name}",
        f"{fmt.number(row['global_batch_size'])}, {fmt.number(row['epochs'])}",
        fmt.as_published(row["train_seconds"]),
        fmt.as_published(row["examples_per_second"]),
        f"{accuracy.text}{mistakes}",
        "elsewhere",
    ]


def _number_machines(runs: Sequence[Run], machines: dict[str, list[float]]) -> list[int]:
    """The numbers of the runs' machines, in the order of the rows. Adds the speeds that the probe measured."""
    for run in runs:
        speed = run["reference_flops_per_second"]
        machines.setdefault(_machine(run), []).extend([speed / 1e9] if speed else [])
    places = list(machines)
    return list(dict.fromkeys(places.index(_machine(run)) + 1 for run in runs))


def _machine(run: Run) -> str:
    device = fmt.plain(run["device_name"] or run["effective_device"])
    cores = fmt.plural(run["granted_cores"], "core") if run["granted_cores"] else ""
    memory = f"{fmt.number(run['granted_memory_gib'])} GiB" if run["granted_memory_gib"] else ""
    verified = "device verified" if run["device_verified"] else "device not verified"
    fetched = f"fetched from {fmt.plain(run['fetched_from'])}" if run["fetched_from"] else ""
    # Some names contain their cores.
    return fmt.joined(device, "" if cores in device else cores, memory, fmt.computed_in(run), verified, fetched)


def _speeds(speeds: Sequence[float]) -> str:
    """The speeds by the receipt's probe. On a shared machine they differ from run to run."""
    ends = dict.fromkeys(fmt.number(end) for end in (min(speeds), max(speeds))) if speeds else ()
    return f", {' to '.join(ends)} GFLOP/s by the receipt's probe" if ends else ""
