"""The table of results for a README: a row for each model and recipe, its sources and its machines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Column, Group, Table, Text
from pipeline.report.data.scenarios import grouped
from pipeline.report.formats import Run
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import (
    accuracy,
    counted,
    further,
    is_published,
    loss_in_nats,
    published_groups,
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
            rows.append({**row, "on": f"machine {' and '.join(map(str, where))}"})
        groups.append(Group("", rows))
        for source in published_groups(report, experiment):
            sources.append(" ".join([fmt.sentence(source.notes[0]), *source.notes[1:]]))
            rows = [{**row, "on": "elsewhere", "source_number": len(sources)} for row in source.rows]
            groups.append(Group("", rows, is_aside=True))
    table = Table(
        (
            Column("experiment", lambda row: fmt.plain(row["experiment"])),
            Column("network / recipe", _result_name),
            Column("batch, epochs", lambda row: f"{fmt.number(row['global_batch_size'])}, {fmt.number(row['epochs'])}"),
            Column("training time, s", _result_figure("train_seconds", 1), True),
            Column("trained a second", _result_figure("examples_per_second", 0), True),
            Column("on the test split", _result_accuracy, True),
            Column("on", lambda row: row["on"]),
        ),
        groups=groups,
    )
    listed = [Text(text, kind=f"{place}.") for place, text in enumerate(sources, start=1)]
    lines = [
        Text(f"machine {place}: {machine}{_speeds(speeds)}", kind="-")
        for place, (machine, speeds) in enumerate(machines.items(), start=1)
    ]
    elsewhere = [Text("Published elsewhere, not measured here:"), *listed] if listed else []
    return [table, *elsewhere, Text("Measured on:"), *lines]


def _result_name(row: Mapping[str, Any]) -> str:
    if not is_published(row):
        parts = [fmt.model_and_recipe(row), fmt.plain(row["augment"]), fmt.inputs(row)]
        return " / ".join(filter(None, parts))
    note = f" ({fmt.plain(row['device_note'])})" if row["device_note"] else ""
    what = fmt.joined(f"{fmt.plain(row['scenario'])}{note}", *further(row))
    # By number: titles of sources would make the column too wide.
    return f"published, source {row['source_number']}: {what}"


def _result_figure(name: str, decimals: int) -> Callable[[Mapping[str, Any]], str]:
    def text(row: Mapping[str, Any]) -> str:
        if is_published(row):
            return fmt.as_published(row[name])
        unit = f" {units_of_run(row).many}" if name == "examples_per_second" else ""
        return f"{fmt.mean_number(row[name], decimals)}{unit}"

    return text


def _result_accuracy(row: Mapping[str, Any]) -> str:
    if is_published(row):
        cell = accuracy(row)
        return f"{cell.text} ({fmt.joined(*cell.notes)})" if cell.notes else cell.text
    how_often = fmt.plural(len(row["seeds"]), "run") + ", not made here" * bool(row["fetched_from"])
    first, *further = filter(None, [loss_in_nats(row), fmt.mean_percent(row["val_accuracy"], 2)])
    return f"{first} ({fmt.joined(*further, with_views(row), how_often, counted(row))})"


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
