"""Batches: the tables of times by batch size, as rows."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from pipeline.problems.units import units_of_run
from pipeline.report.wording.devices import computed_in, device_note
from pipeline.report.wording.formats import (
    NO_FIGURE,
    as_published,
    hosts,
    mean_number,
    moment,
    number,
    plain,
    plural,
)
from pipeline.report.wording.runs import network_and_recipe, remarks

NO_TIMES = (
    "No epoch or step times: each run compiled the model in every epoch it trained, and those are left out. Train for "
    "two epochs or more."
)


def batch_headings(table: Mapping[str, Any]) -> tuple[str, ...]:
    """What the columns of a table by batch hold; the fourth one part of a batch."""
    return ("batch", "epoch, s", "step, ms", f"{units_of_run(table).examples.removesuffix('s')}, µs", "runs")


def batch_rows(table: Mapping[str, Any]) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Each line of a table by batch, ours alone: its name, and its points in the order of batch_headings."""
    names = Counter(line_name(line) for line in table["lines"])
    return [
        (
            # Other code or libraries make another line that is called the same.
            f"{name}, {moment(line['finished_at'])}" if names[name := line_name(line)] > 1 else name,
            tuple(
                (
                    number(point["global_batch_size"]),
                    mean_number(point["epoch_seconds"], 2),
                    mean_number(_scaled(point["step_seconds"], 1e3), 2),
                    mean_number(_scaled(point["step_seconds"], 1e6 / max(1, point["global_batch_size"])), 1),
                    number(len(point["seeds"])),
                )
                for point in line["points"]
            ),
        )
        for line in table["lines"]
    ]


def line_name(line: Mapping[str, Any]) -> str:
    """What a line by batch was measured on, and why its figures need care."""
    note = device_note(line)
    care = [*remarks(line), *([] if line["device_verified"] else ["device not verified"])]
    device = f"{plain(line['effective_device'])} ({note})" if note else plain(line["effective_device"])
    asked_for = f"requested {plain(line['requested_device'])}"
    return ", ".join([f"{device} on {hosts(line['hostnames'])}", asked_for, *care])


def table_name(table: Mapping[str, Any]) -> str:
    """What the rows of a table by batch share."""
    epochs = plural(table["epochs"], "epoch")
    return f"{network_and_recipe(table)}, {epochs}, {computed_in(table)}"


def published_batch_rows(table: Mapping[str, Any]) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """The same of what was published of the network by batch, measured elsewhere."""
    return [
        (
            f"{plain(line['effective_device'])}, published elsewhere: {plain(line['source'], 200)}",
            tuple(
                (
                    number(point["global_batch_size"]),
                    as_published(point["epoch_seconds"]),
                    NO_FIGURE,
                    as_published(point["microseconds_per_example"]),
                    NO_FIGURE,
                )
                for point in line["points"]
            ),
        )
        for line in table["published"]
    ]


def _scaled(figure: Mapping[str, float | None], factor: float) -> dict[str, float | None]:
    return {name: None if seconds is None else factor * seconds for name, seconds in figure.items()}
