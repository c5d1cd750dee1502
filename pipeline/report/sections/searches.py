"""Sections of searches, with the best settings over several seeds, the importance of each setting, and all trials."""

from collections.abc import Iterator
from statistics import stdev

from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Links, Section, Table, Text, numbers, words
from pipeline.report.data.history import compare_metrics, judge_change
from pipeline.report.report import Report
from pipeline.runs.search import Search, Trial

_NOISE = {"noise": "may be noise of the seeds", "unknown": "may be noise, as there are too few seeds"}


def searches(report: Report) -> Iterator[Section]:
    """Yield the searches of the requested experiments, or all without a request."""
    current = {run.experiment for run in report.requested()}
    for index, search in enumerate(report.searches, start=1):
        if search.experiment in current or not current:
            yield Section(f"search-{index}", f"Search: {fmt.plain(search.name)}", [*_blocks(search)])


def _blocks(search: Search) -> Iterator[Block]:
    done = sum(trial.state != "running" for trial in search.trials)
    caption = f"Best of {done} of {fmt.plural(search.requested, 'trial')}, judged on the validation split alone."
    yield _table(search, search.best, caption)
    yield Text(_verdict(search), "finding")
    name = f"search-{fmt.plain(search.name)}.ini"
    yield Links([("Settings file of the best", name)] if search.settings_file else [], {name: search.settings_file})
    shares = fmt.joined(*(f"{fmt.plain(name)} {fmt.percent(share, 0)}" for name, share in search.importances.items()))
    few = "Too few trials have finished to estimate the importance of each setting, or all have the same metric."
    yield Text(f"Importance: {shares}. The shares of a few dozen trials are rough." if shares else few, "note")
    yield Box("fold", [_table(search, search.trials)], "Trials", is_open=True)


def _table(search: Search, trials: list[Trial], caption: str = "") -> Table:
    names = sorted({name for trial in search.trials for name in trial.settings})
    titles = [*words(*map(fmt.plain, names)), *numbers(search.metric.replace("_", " "))]
    rows = []
    for trial in trials:
        settings = [fmt.plain(trial.settings.get(name, fmt.MISSING)) for name in names]
        seeds = [f"{fmt.plain(seed)}: {_metric(search, value)}" for seed, value in trial.values.items()]
        deviation = stdev(trial.values.values()) if len(seeds) > 1 and trial.mean() == trial.mean() else None
        mean = _metric(search, fmt.Spread(trial.mean(), deviation))
        rest = fmt.number(trial.epochs), trial.state, ", ".join(seeds) if caption else ""
        rows.append([fmt.number(trial.number), *settings, mean, *rest])
    columns = [*numbers("trial"), *titles, *numbers("epochs"), *words("state", "by seed")]
    return Table(columns, rows, "Best trials" if caption else "All trials", caption, "" if caption else "sortable")


def _metric(search: Search, value: fmt.Metric) -> str:
    return fmt.number(value, 4) if search.metric == "validation_loss" else fmt.percent(value, 2)


def _verdict(search: Search) -> str:
    """Return whether the best settings are better than the second by more than the noise of the seeds."""
    values = [[*trial.values.values()] for trial in search.best if None not in trial.values.values()]
    if len(values) < 2:
        return ""
    verdict = judge_change(compare_metrics(values[0], values[1], values))
    lead = "is a tie" if values[0] == values[1] else _NOISE.get(verdict, "is more than noise of the seeds")
    return f"The lead of row 1 over row 2 {lead}. The first seed chose the rows, so its values are too good on average."
