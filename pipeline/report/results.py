"""The results of each experiment for a README: the newest row of each setup, and the machines."""

from dataclasses import replace

from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Text
from pipeline.report.data.scenarios import grouped
from pipeline.report.formats import Run
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import scoreboard
from pipeline.runs.record import FINISHED, is_stand_in, names


def results(report: Report) -> list[Block]:
    """A scoreboard for each experiment with a finished run on real data, and the machines. Empty without such a run."""
    finished = [row for row in report.scenarios if row["status"] == FINISHED and not is_stand_in(row)]
    setup = ("experiment", "dataset", "input_shape", *names("setting", "hardware", "computation", repeated=False))
    newest = [group[0] for group in grouped(finished, setup)]
    shown = replace(report, current=[], scenarios=newest)
    blocks: list[Block] = []
    for experiment in dict.fromkeys(row["experiment"] for row in newest):
        table = replace(scoreboard(shown, experiment), caption="")
        blocks += [Text(fmt.plain(experiment), kind="heading"), table]
    used = {fingerprint for row in newest for fingerprint in row["fingerprints"]}
    machines = dict.fromkeys(_machine(run) for run in report.runs if run["fingerprint"] in used)
    return [*blocks, *(Text(machine, lead="Measured on", kind="-") for machine in machines)]


def _machine(run: Run) -> str:
    device = fmt.plain(run["device_name"] or run["effective_device"])
    cores = fmt.plural(run["granted_cores"], "core") if run["granted_cores"] else ""
    memory = f"{fmt.number(run['granted_memory_gib'])} GiB" if run["granted_memory_gib"] else ""
    verified = "device verified" if run["device_verified"] else "device not verified"
    fetched = f"fetched from {fmt.plain(run['fetched_from'])}" if run["fetched_from"] else ""
    # Some names contain their cores.
    return fmt.joined(device, "" if cores in device else cores, memory, fmt.computed_in(run), verified, fetched)
