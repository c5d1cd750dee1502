"""The evaluation of a run, in the blocks of its problem."""

from collections.abc import Iterator

from pipeline.problems.results import results_of
from pipeline.report.blocks import Block, Section
from pipeline.report.formats import Run
from pipeline.report.report import Report


def evaluation(report: Report) -> Iterator[Section]:
    """The evaluation of a single requested run."""
    runs = report.requested()
    if len(runs) == 1:
        yield Section("evaluation", "Evaluation", evaluation_blocks(report, runs[0], "this run"))


def evaluation_blocks(report: Report, run: Run, name: str, *, with_drawings: bool = True) -> list[Block]:
    """The blocks of a run's evaluation. Empty if it has none."""
    blocks = results_of(run["problem"]).hook("evaluation_blocks")
    return blocks(report, run, name, with_drawings) if blocks and run["evaluation"] else []
