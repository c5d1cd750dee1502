"""Changes: what has changed since the last comparable runs, as a sentence and as rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report.facts.changes import judge_change
from pipeline.report.wording.devices import computed_in, device_note
from pipeline.report.wording.formats import moment, number, percent, plain, plural, points, signed
from pipeline.report.wording.runs import network_and_recipe


def change_sentences(report: Mapping[str, Any]) -> list[str]:
    """For each group of runs asked for that has comparable ones before it, what has changed."""
    return [_change_sentence(change) for change in report["changes"] if change["earlier"]]


def _change_sentence(change: Mapping[str, Any]) -> str:
    accuracy, rate = change["val_accuracy"], change["examples_per_second"]
    return (
        f"Compared with the last comparable run ({moment(change['since'])}): "
        f"test accuracy {points(accuracy['change'])}, {change_verdict(accuracy)}; "
        f"{units_of_run(change).rate} {signed(rate['change'])}, {change_verdict(rate)}."
    )


def change_verdict(figure: Mapping[str, float | None]) -> str:
    """Whether a change is one, in a few words."""
    words = {
        "new": "no earlier run to compare with",
        "unknown": "too few runs to estimate the noise",
        "noise": "within noise",
        "better": "better",
        "worse": "worse",
        "no reference": "not judged: how fast the machine was is not known",
        "other speed": "not judged: the machine's speed differed",
    }[judge_change(figure)]
    return words if figure["sigmas"] is None else f"{words} ({number(abs(figure['sigmas']), 1)} σ)"


def change_rows(changes: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The changes since the last comparable runs: (group, figure, before, now, change, verdict)."""
    return [
        (group_name(change), what, *_compared(change[figure], show, show_change))
        for change in changes
        for what, figure, show, show_change in (
            ("test accuracy", "val_accuracy", percent, points),
            (units_of_run(change).rate, "examples_per_second", number, signed),
        )
    ]


def _compared(
    figure: Mapping[str, float | None],
    show: Callable[[float | None], str],
    show_change: Callable[[float | None], str],
) -> tuple[str, ...]:
    return show(figure["baseline"]), show(figure["value"]), show_change(figure["change"]), change_verdict(figure)


def group_name(group: Mapping[str, Any]) -> str:
    """What the runs of a group of the history share."""
    where = f"{plain(group['effective_device'])} ({device_note(group) or 'unknown'})"
    how = f"batch {number(group['global_batch_size'])}, {plural(group['epochs'], 'epoch')}, {computed_in(group)}"
    return f"{network_and_recipe(group)} on {plain(group['dataset'])}, {how}, {where}"
