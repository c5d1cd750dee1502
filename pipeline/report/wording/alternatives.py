"""Alternatives: what each drawing shows, for those who do not see it."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.wording.changes import group_name
from pipeline.report.wording.formats import number, percent, plain
from pipeline.report.wording.runs import run_name
from pipeline.report.wording.text import position_rows


def of_calibration(run: Mapping[str, Any]) -> str:
    """The drawing of how often a run was right by how sure it was."""
    facts = run["evaluation"]
    bins = [one for one in facts["calibration"] if one["accuracy"] is not None]
    ends = "; ".join(f"confidence {percent(one['confidence'])}: right {percent(one['accuracy'])}" for one in bins)
    of_what = f"{run_name(run, [])} over {number(facts['num_examples'])} images"
    return f"Calibration of {of_what}, expected error {percent(facts['expected_calibration_error'])}. {ends}."


def of_positions(run: Mapping[str, Any]) -> str:
    """The drawing of the loss by place in a sequence."""
    ends = "; ".join(f"place {place}: {loss}" for place, loss in position_rows(run["evaluation"]))
    return f"Loss by place in the sequence, {run_name(run, [])}, in nats. {ends}."


def of_labels(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The drawing of how many examples of each label a split has."""
    words = [
        f"{plain(split)}: {', '.join(f'{plain(label)} {number(count)}' for label, count in labels.items())}"
        for split, labels in counts.items()
    ]
    return f"Examples of each label. {'; '.join(words)}."


def of_history(groups: Sequence[Mapping[str, Any]]) -> str:
    """The drawing of comparable runs over time."""
    ends = "; ".join(
        f"{group_name(group)}: from {percent(group['points'][0]['val_accuracy'])} "
        f"to {percent(group['points'][-1]['val_accuracy'])}"
        for group in groups
    )
    return f"Test accuracy and throughput of every run reported here, by date. {ends}."


def of_batches(name: str, lines: Sequence[tuple[str, Sequence[Sequence[str]]]]) -> str:
    """The drawing of a table by batch, of its `lines` as `batch_rows` gives them."""
    ends = "; ".join(
        f"{line}: {', '.join(f'batch {batch}: {epoch} s, {step} ms' for batch, epoch, step, *_ in points)}"
        for line, points in lines
    )
    return f"Epoch time and step time by global batch, {name}. {ends}."


def of_curves(ends: Sequence[tuple[str, str]]) -> str:
    """The drawing of the curves of runs, each with its name and its final figures."""
    words = "; ".join(f"{name}: {final}" for name, final in ends)
    return f"Accuracy and loss by epoch, training and test. At the end, {words}."


def of_seconds(run: Mapping[str, Any], legend: Sequence[str]) -> str:
    """The bar of where a run's time went."""
    return f"Time breakdown of {run_name(run, [])}: {'; '.join(legend)}."
