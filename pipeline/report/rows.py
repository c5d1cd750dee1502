"""Rows: runs and published figures as lines of text, the same for HTML, Markdown and the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.formats import (
    NO_FIGURE,
    mean_number,
    mean_percent,
    megabytes,
    moment,
    number,
    percent,
    plain,
    plural,
    yes_no,
)
from pipeline.report.wording import device_note, is_stand_in, mark, remarks

EPOCH_HEADINGS = (
    "epoch",
    "training accuracy",
    "validation accuracy",
    "training loss",
    "validation loss",
    "training, s",
    "evaluation, s",
    "images/s",
    "learning rate",
)

TUNING_HEADINGS = ("precision", "XLA", "steps at a time", "input", "images/s")
BATCH_HEADINGS = ("batch", "epoch, s", "step, ms", "runs")

# Field of the record's time_breakdown → (what it is, decimals).
_TIMES = {
    "step_seconds": ("A step of training", 4),
    "step_alone_seconds": ("A step with its images at hand", 4),
    "input_alone_seconds": ("The input of a step alone", 4),
    "compilation_seconds": ("Compilation", 2),
    "evaluation_seconds": ("Evaluation", 2),
    "checkpoint_seconds": ("Checkpoints", 2),
}

_NOT_HERE = "not here"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the scoreboard, as text; `remarks` say why its figures need care."""

    label: str
    runs: str = ""
    details: tuple[str, ...]
    mark: str = ""
    published: bool = False
    remarks: tuple[str, ...] = ()
    stand_in: bool = False
    requested_device: str
    effective_device: str
    device_note: str
    host: str = ""
    device_verified: str
    dataset: str
    dataset_verified: str
    requested_precision: str = NO_FIGURE
    precision: str = NO_FIGURE
    global_batch_size: str = NO_FIGURE
    epochs: str
    train_seconds: str
    examples_per_second: str
    val_accuracy: str
    speedup: str


def scenario_row(scenario: Mapping[str, Any], current: Sequence[str]) -> Row:
    """The scoreboard's line for a scenario: one run of ours, or several that differ in their seed."""
    run, seeds = scenario, ", ".join(map(number, scenario["seeds"]))
    several = len(scenario["seeds"]) > 1
    which = plain(f"seeds {seeds}") if several else f"seed {seeds}, {plain(scenario['fingerprints'][0])[:8]}"
    return Row(
        label=f"{plain(run['model'])} / {plain(run['recipe'])}",
        runs=plural(len(scenario["seeds"]), "run") if several else "",
        details=(which, moment(run["finished_at"])),
        mark=mark(scenario["fingerprints"], current),
        remarks=remarks(run),
        stand_in=is_stand_in(run),
        requested_device=plain(run["requested_device"]),
        effective_device=plain(run["effective_device"]),
        device_note=device_note(run),
        host=plain(run["hostname"] or ""),
        device_verified=yes_no(run["device_verified"]),
        dataset=plain(run["dataset"]),
        dataset_verified=yes_no(run["dataset_verified"]),
        requested_precision=plain(run["requested_precision"]),
        precision=plain(run["precision"]),
        global_batch_size=number(run["global_batch_size"]),
        epochs=number(run["epochs"]),
        train_seconds=mean_number(run["train_seconds"], 2),
        examples_per_second=mean_number(run["examples_per_second"]),
        val_accuracy=mean_percent(run["val_accuracy"], 2),
        speedup=_speedup(run["speedup"]),
    )


def published_row(row: Mapping[str, Any]) -> Row:
    """The scoreboard's line for figures published elsewhere: nothing in it was measured or verified here."""
    return Row(
        label=plain(row["scenario"]),
        details=("published elsewhere",),
        published=True,
        requested_device=plain(row["requested_device"]),
        effective_device=plain(row["effective_device"]),
        device_note=plain(row["device_note"]),
        device_verified=_NOT_HERE,
        dataset=plain(row["dataset"]),
        dataset_verified=_NOT_HERE,
        epochs=number(row["epochs"]),
        train_seconds=number(row["train_seconds"], 2),
        examples_per_second=number(row["examples_per_second"]),
        val_accuracy=percent(row["val_accuracy"], 2),
        speedup="published elsewhere",
    )


def receipt(run: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What a run asked for and what it got: (what, requested, effective, verified)."""
    device = f"{plain(run['effective_device'])}, {device_note(run)}".removesuffix(", ")
    data = f"{plain(run['dataset'])}, a stand-in" if is_stand_in(run) else plain(run["dataset"])
    return [
        ("Device", plain(run["requested_device"]), device, yes_no(run["device_verified"])),
        ("Data", plain(run["requested_dataset"]), data, yes_no(run["dataset_verified"])),
        ("Precision", plain(run["requested_precision"]), plain(run["precision"]), "not measured"),
        ("XLA", _switch(run["requested_jit_compile"]), _switch(run["jit_compile"]), "not measured"),
    ]


def tiles(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The few figures one looks for first: (what, figure with its unit)."""
    return [
        ("Validation accuracy", percent(run["val_accuracy"], 2)),
        ("Training time", f"{number(run['train_seconds'], 1)} s"),
        ("Images/s", number(run["examples_per_second"])),
        ("First epoch", f"{number(run['first_epoch_seconds'], 1)} s"),
    ]


def circumstances(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rest of what one would need to repeat a run: (what, value)."""
    return [
        ("Model / recipe", f"{plain(run['model'])} / {plain(run['recipe'])}"),
        ("Global batch", f"{number(run['global_batch_size'])} images over {plural(run['num_replicas'], 'replica')}"),
        ("Seed", plain(run["seed"])),
        ("Validation loss", number(run["val_loss"], 4)),
        ("Finished", moment(run["finished_at"])),
        ("Host", plain(run["hostname"] or "unknown")),
        ("Fingerprint", plain(run["fingerprint"])),
        ("Peak memory", f"host {megabytes(run['peak_host_bytes'])}, device {megabytes(run['peak_device_bytes'])}"),
    ]


def time_rows(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the time went: (what, seconds or share of a step); empty where that was not measured."""
    parts = run["time_breakdown"]
    if parts is None:
        return []
    seconds = [(what, f"{number(parts[name], decimals)} s") for name, (what, decimals) in _TIMES.items()]
    return [*seconds, ("Share of a step spent waiting", percent(parts["input_wait_share"], 0))]


def evidence(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's hardware receipt, whatever it holds, as (place, value) of each of its leaves."""
    return [(plain(" / ".join(path), 120), _leaf(value)) for path, value in _leaves(run["receipt"] or {})]


def tuning_rows(run: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What was tried before training, in the order of TUNING_HEADINGS."""
    return [
        (
            plain(tried["precision"]),
            _switch(tried["jit_compile"]),
            number(tried["steps_per_execution"]),
            plain(tried["input"] or NO_FIGURE),
            number(tried["examples_per_second"]),
        )
        for tried in (run["tuning"] or {}).get("candidates", ())
    ]


def chosen(run: Mapping[str, Any]) -> str:
    """What the tuning chose, as "name value" pairs; empty where nothing was tuned."""
    choice = (run["tuning"] or {}).get("chosen") or {}
    return ", ".join(f"{plain(' / '.join(path))} {_leaf(value)}" for path, value in _leaves(choice))


def batch_rows(table: Mapping[str, Any]) -> list[tuple[str, tuple[tuple[str, ...], ...]]]:
    """Each line of a table by batch: its name, and its points in the order of BATCH_HEADINGS."""
    return [
        (
            line_name(line),
            tuple(
                (
                    number(point["global_batch_size"]),
                    mean_number(point["epoch_seconds"], 2),
                    mean_number(_milliseconds(point["step_seconds"]), 2),
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
    return ", ".join([f"{device} on {plain(line['hostname'] or 'an unknown host')}", asked_for, *care])


def table_name(table: Mapping[str, Any]) -> str:
    """What the rows of a table by batch share."""
    epochs = plural(table["epochs"], "epoch")
    return f"{plain(table['model'])} / {plain(table['recipe'])}, {epochs}, {plain(table['precision'])}"


def epoch_rows(epochs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The figures of a run's epochs, in the order of EPOCH_HEADINGS."""
    return [
        (
            number(row["epoch"]),
            percent(row["accuracy"], 2),
            percent(row["val_accuracy"], 2),
            number(row["loss"], 4),
            number(row["val_loss"], 4),
            number(row["train_seconds"], 2),
            number(row["evaluation_seconds"], 2),
            number(row["examples_per_second"]),
            f"{row['learning_rate']:.2e}" if row["learning_rate"] is not None else NO_FIGURE,
        )
        for row in epochs
    ]


def _speedup(speedup: Mapping[str, Any]) -> str:
    if speedup["ratio"] is None:
        return speedup["words"]
    return f"{number(speedup['ratio'], 2)} × {speedup['words']}"


def _milliseconds(figure: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: None if seconds is None else 1000 * seconds for name, seconds in figure.items()}


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict | list):
        yield path, value
        return
    for name, child in value.items() if isinstance(value, dict) else enumerate(value, start=1):
        yield from _leaves(child, (*path, str(name)))


def _leaf(value: Any) -> str:
    if isinstance(value, bool):
        return yes_no(value)
    return NO_FIGURE if value is None else plain(value, 200)


def _switch(value: Any) -> str:
    return {True: "on", False: "off", None: "auto"}.get(value, plain(value))
