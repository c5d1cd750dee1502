"""Rows: runs and published figures as lines of text, the same for HTML, Markdown and the terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.report.formats import NO_FIGURE, dataset_name, moment, number, percent, plain, yes_no
from pipeline.report.wording import device_note, is_stand_in

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

_NOT_HERE = "not here"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the scoreboard, as text; `warning` says why its figures need care, or is empty."""

    label: str
    details: tuple[str, ...]
    current: bool = False
    published: bool = False
    warning: str = ""
    requested_device: str
    effective_device: str
    device_note: str
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


def run_row(run: Mapping[str, Any], current: str | None) -> Row:
    """The scoreboard's line for a run of ours."""
    warning = f"stand-in for {dataset_name(run['requested_dataset'])}" if is_stand_in(run) else ""
    return Row(
        label=f"{plain(run['model'])} / {plain(run['recipe'])}",
        details=(plain(run["fingerprint"])[:8], moment(run["finished_at"])),
        current=run["fingerprint"] == current,
        warning=warning,
        requested_device=plain(run["requested_device"]),
        effective_device=plain(run["effective_device"]),
        device_note=device_note(run),
        device_verified=yes_no(run["device_verified"]),
        dataset=plain(run["dataset"]),
        dataset_verified=yes_no(run["dataset_verified"]),
        requested_precision=plain(run["requested_precision"]),
        precision=plain(run["precision"]),
        global_batch_size=number(run["global_batch_size"]),
        **_figures(run),
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
        **_figures(row),
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
        ("Global batch", f"{number(run['global_batch_size'])} images over {_replicas(run)}"),
        ("Seed", plain(run["seed"])),
        ("Validation loss", number(run["val_loss"], 4)),
        ("Finished", moment(run["finished_at"])),
        ("Host", plain(run["hostname"] or "unknown")),
        ("Fingerprint", plain(run["fingerprint"])),
    ]


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


def _figures(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "epochs": number(row["epochs"]),
        "train_seconds": number(row["train_seconds"], 2),
        "examples_per_second": number(row["examples_per_second"]),
        "val_accuracy": percent(row["val_accuracy"], 2),
    }


def _replicas(run: Mapping[str, Any]) -> str:
    return f"{number(run['num_replicas'])} replica{'' if run['num_replicas'] == 1 else 's'}"


def _switch(value: Any) -> str:
    return {True: "on", False: "off", None: "auto"}.get(value, plain(value))
