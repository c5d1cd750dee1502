"""DAG: the stages that one of them is made from, and how several of one task are told apart for people."""

from collections.abc import Iterator, Sequence

from tasks.stage import Stage


def from_below(stage: Stage) -> list[Stage]:
    """The stage and all it is made from, the source first."""
    # Several runs are made from the same records: each stage once, where it is first needed.
    return list(dict.fromkeys(_from_below(stage)))


def by_name(stages: Sequence[Stage]) -> dict[str, Stage]:
    """The stages by their tasks' names; several of one name are distinguished by the settings in which they differ."""
    named = {}
    for stage in stages:
        others = [other.param_kwargs for other in stages if other.task_family == stage.task_family]
        apart = [
            f"{setting} {value}"
            for setting, value in stage.param_kwargs.items()
            if any(other[setting] != value for other in others)
        ]
        named[" ".join([stage.task_family, ", ".join(apart)]).strip()] = stage
    return named


def _from_below(stage: Stage) -> Iterator[Stage]:
    for below in stage.below:
        yield from _from_below(below)
    yield stage
