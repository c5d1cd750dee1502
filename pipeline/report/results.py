"""The results of each experiment for a README: the newest row of each setup, and the machines."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Cell, Text
from pipeline.report.data.reading import Run
from pipeline.report.data.scenarios import grouped_rows
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import scoreboard
from pipeline.runs.record import FINISHED, names


def results(report: Report) -> list[Block]:
    """A scoreboard for each experiment with a finished run on real data, and the machines. Empty without such a run."""
    finished = [row for row in report.scenarios if row.run.status == FINISHED and not row.run.is_placeholder]
    setup = ("experiment", "dataset", "input_shape", *names("setting", "hardware", "computation", repeated=False))
    newest = [group[0] for group in grouped_rows(finished, setup)]
    shown = replace(report, current=[], scenarios=newest)
    experiments = grouped_rows(newest, ("experiment",))
    machines = list(dict.fromkeys(_machine(row.run) for rows in experiments for row in rows))
    # A single machine needs no number.
    names_of = {one: f"machine {place}" if len(machines) > 1 else "" for place, one in enumerate(machines, start=1)}
    blocks: list[Block] = []
    for rows in experiments:
        table = scoreboard(shown, rows[0].run.experiment)
        cells = [_on(names_of[_machine(row.run)], line) for row, line in zip(rows, table.rows, strict=True)]
        blocks += [Text(fmt.plain(rows[0].run.experiment), kind="heading"), replace(table, rows=cells, caption="")]
    leads = {one: f"Measured on {name}".rstrip() for one, name in names_of.items()}
    return [*blocks, *(Text(machine, lead=lead, kind="-") for machine, lead in leads.items())]


def _on(machine: str, cells: Sequence[Any]) -> list[str | Cell]:
    """The cells of a row, with the name of its machine below the device."""
    run, device, *others = cells
    return [run, replace(device, notes=(*device.notes, machine)), *others]


def _machine(run: Run) -> str:
    """The machine of a run or of the runs of a row, which share it."""
    device = fmt.plain(run.device_name or run.effective_device)
    cores = fmt.plural(run.granted_cores, "core") if run.granted_cores else ""
    memory = f"{fmt.number(run.granted_memory_gib)} GiB" if run.granted_memory_gib else ""
    verified = "device verified" if run.device_verified else "device not verified"
    fetched = f"fetched from {fmt.plain(run.fetched_from)}" if run.fetched_from else ""
    # Some names contain their cores.
    return fmt.joined(device, "" if cores in device else cores, memory, fmt.computed_in(run), verified, fetched)
