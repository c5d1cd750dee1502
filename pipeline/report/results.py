"""Results of each experiment for a README, with the newest row of each setup and the machines."""

from dataclasses import replace
from itertools import chain
from operator import attrgetter

from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Text
from pipeline.report.data.experiments import ranked
from pipeline.report.data.reading import Run
from pipeline.report.data.scenarios import grouped
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import published, scoreboard
from pipeline.runs.record import FINISHED, names


def results(report: Report) -> list[Block]:
    """Return a scoreboard per experiment with finished runs on real data, and the machines. Empty without such runs."""
    finished = [row for row in report.scenarios if row.run.status == FINISHED and not row.run.is_placeholder]
    setup = ("experiment", "dataset", "input_shape", *names("setting", "hardware", "computation", repeated=False))
    newest = [group[0] for group in grouped(finished, setup, attrgetter("run"))]
    newest_only = replace(report, current=[], scenarios=newest)
    experiments = grouped(newest, ["experiment"], attrgetter("run"))
    machines = list(dict.fromkeys(_machine(row.run) for rows in experiments for row in rows))
    # A single machine has no number.
    numbered = {name: f"machine {index}" if len(machines) > 1 else "" for index, name in enumerate(machines, start=1)}
    blocks: list[Block] = []
    for rows in experiments:
        name = rows[0].run.experiment
        table = scoreboard(newest_only, name)
        devices = [column.title for column in table.columns].index("device")
        cells = []
        for row, line in zip(chain(*ranked(rows)), table.rows, strict=True):
            device = replace(line[devices], notes=(*line[devices].notes, numbered[_machine(row.run)]))
            cells.append([*line[:devices], device, *line[devices + 1 :]])
        blocks += [Text(fmt.plain(name), kind="heading"), replace(table, rows=cells), *published(newest_only, name)]
    leads = {machine: f"Measured on {name}".rstrip() for machine, name in numbered.items()}
    return [*blocks, *(Text(machine, lead=lead, kind="-") for machine, lead in leads.items())]


def _machine(run: Run) -> str:
    """Return the machine of a run. All runs of a row share it."""
    device = fmt.plain(run.device_name or run.effective_device)
    cores = fmt.plural(run.granted_cores, "core") if run.granted_cores else ""
    memory = f"{fmt.number(run.granted_memory_gib)} GiB" if run.granted_memory_gib else ""
    verified = "device verified" if run.device_verified else "device not verified"
    fetched = f"fetched from {fmt.plain(run.fetched_from)}" if run.fetched_from else ""
    # Some device names contain the number of cores.
    return fmt.joined(device, "" if cores in device else cores, memory, fmt.computed_in(run), verified, fetched)
