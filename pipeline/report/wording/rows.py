"""Rows: runs and published figures as lines of the scoreboard, the same for HTML, Markdown and the terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.problems.judged import judged
from pipeline.problems.units import units_of_run
from pipeline.report.wording.devices import computed_in, data_verified, device_note, device_verified
from pipeline.report.wording.formats import (
    NO_FIGURE,
    as_published,
    hosts,
    mean_number,
    mean_percent,
    moment,
    number,
    plain,
    plural,
)
from pipeline.report.wording.runs import inputs, mark, network_and_recipe, remarks
from pipeline.runs.record import is_stand_in

_NOT_HERE = "not here"
# From this accuracy on one counts the mistakes.
_FEW_WRONG = 0.95
#: What follows an accuracy with test-time augmentation.
WITH_VIEWS = "with TTA"
# A standard error that is said; that of CIFAR-10's 10,000 images is less.
_MUCH = 0.005


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
    # What is known beside the test accuracy: a text's test loss, the accuracy where images are seen several times, that
    # on the validation split.
    beside: str = ""
    # What the accuracy comes to on so many images or characters.
    counted: str = ""
    # Whether training again gave the same weights; NO_FIGURE where nobody asked.
    repeated: str = NO_FIGURE
    speedup: str


def scenario_row(scenario: Mapping[str, Any], current: Sequence[str]) -> Row:
    """The scoreboard's line for a scenario: one run of ours, or several that differ in their seed."""
    run, seeds = scenario, ", ".join(map(number, scenario["seeds"]))
    several = len(scenario["seeds"]) > 1
    which = plain(f"seeds {seeds}") if several else f"seed {seeds}, {plain(scenario['fingerprints'][0])[:8]}"
    return Row(
        label=network_and_recipe(run),
        runs=plural(len(scenario["seeds"]), "run") if several else "",
        details=(*filter(None, [inputs(run)]), which, moment(run["finished_at"])),
        mark=mark(scenario["fingerprints"], current),
        remarks=remarks(run),
        stand_in=is_stand_in(run),
        requested_device=plain(run["requested_device"]),
        effective_device=plain(run["effective_device"]),
        device_note=device_note(run),
        host=hosts(run["hostnames"]) if any(run["hostnames"]) else "",
        device_verified=device_verified(run),
        dataset=plain(run["dataset"]),
        dataset_verified=data_verified(run),
        requested_precision=plain(run["requested_precision"]),
        precision=computed_in(run),
        global_batch_size=number(run["global_batch_size"]),
        epochs=number(run["epochs"]),
        train_seconds=mean_number(run["train_seconds"], 2),
        examples_per_second=mean_number(run["examples_per_second"]),
        val_accuracy=mean_percent(run["val_accuracy"], 2),
        beside=", ".join(filter(None, [loss_in_nats(run), seen_several_times(run), _validation_accuracy(run)])),
        counted=counted(run),
        repeated=repeated(run),
        speedup=_speedup(run["speedup"]),
    )


def published_row(row: Mapping[str, Any]) -> Row:
    """The scoreboard's line for figures published elsewhere: nothing in it was measured or verified here."""
    return Row(
        label=plain(row["scenario"]),
        details=("published elsewhere", *_further(row)),
        published=True,
        requested_device=plain(row["requested_device"]),
        effective_device=plain(row["effective_device"]),
        device_note=plain(row["device_note"]),
        device_verified=_NOT_HERE,
        dataset=plain(row["datasets"][0]),
        dataset_verified=_NOT_HERE,
        global_batch_size=number(row["global_batch_size"]),
        epochs=number(row["epochs"]),
        train_seconds=as_published(row["train_seconds"]),
        examples_per_second=as_published(row["examples_per_second"]),
        val_accuracy=f"{as_published(100 * row['val_accuracy'])} %" if row["val_accuracy"] is not None else NO_FIGURE,
        counted=_wrong(number(row["wrong"]), row["test_examples"]) if row["wrong"] is not None else "",
        speedup="published elsewhere",
    )


def repeated(scenario: Mapping[str, Any]) -> str:
    """Whether the weights of a row's runs came out the same when they were trained again; only what was seen."""
    seen = [one["is_identical"] for one in scenario["repetitions"] if one]
    if not seen:
        return "not repeated" if scenario["deterministic"] == "true" else NO_FIGURE
    alike, runs = sum(seen), len(scenario["repetitions"])
    if alike < len(seen):
        return "differs" if runs == 1 else f"differs: {len(seen) - alike} of {runs} runs"
    return "bit-identical" if alike == runs else f"bit-identical: {alike} of {runs} runs, the others not repeated"


def loss_in_nats(scenario: Mapping[str, Any]) -> str:
    """Of a text its loss is what one looks for."""
    return judged_figure(scenario) if judged(scenario["problem"]).figure == "val_loss" else ""


def judged_figure(one: Mapping[str, Any]) -> str:
    """The figure by which a run or a row of its problem is judged, with its unit; empty where there is none."""
    by = judged(one["problem"]).figure
    figure = one[by] if isinstance(one[by], Mapping) else {"mean": one[by], "deviation": None}
    if figure["mean"] is None:
        return ""
    return f"{mean_number(figure, 3)} nats" if by == "val_loss" else mean_percent(figure, 2)


def counted(row: Mapping[str, Any]) -> str:
    """What a row's accuracy comes to: how many are wrong where few are, its error where there are few images.

    The error is the standard error for having these images and no others, and says nothing of other seeds. Predictions
    that depend on one another have another, which is not known: of those it is said how many there are.
    """
    accuracy, test_examples = row["val_accuracy"], row["test_examples"]
    mean = accuracy["mean"]
    if mean is None or not test_examples or not 0 <= mean <= 1:
        return ""
    if mean >= _FEW_WRONG:
        wrong = {name: None if part is None else part * test_examples for name, part in accuracy.items()}
        return _wrong(mean_number({**wrong, "mean": test_examples - wrong["mean"]}), test_examples)
    so_many = f"{number(test_examples)} {units_of_run(row).many}"
    if judged(row["problem"]).predictions_per_draw > 1:
        return so_many
    error = math.sqrt(mean * (1 - mean) / test_examples)
    return f"standard error {number(100 * error, 1)} points ({so_many})" if error >= _MUCH else ""


def _wrong(count: str, test_examples: int | None) -> str:
    return f"{count} of {number(test_examples)} wrong" if test_examples else f"{count} wrong"


def _further(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What was published and has no column."""
    return (
        *([f"an epoch {as_published(row['epoch_seconds'])} s"] if row["epoch_seconds"] else []),
        *([f"an image {as_published(row['microseconds_per_example'])} µs"] if row["microseconds_per_example"] else []),
        *([f"loss {as_published(row['val_loss'])}"] if row["val_loss"] is not None else []),
        *(plain(detail) for detail in row["details"]),
    )


def _validation_accuracy(scenario: Mapping[str, Any]) -> str:
    figure = scenario.get("validation_accuracy")
    if figure is None or figure["mean"] is None:
        return ""
    several = scenario.get("validation_tta_accuracy")
    also = f" ({mean_percent(several, 2)} {WITH_VIEWS})" if several and several["mean"] is not None else ""
    return f"validation {mean_percent(figure, 2)}{also}"


def seen_several_times(scenario: Mapping[str, Any]) -> str:
    """The test accuracy of the mean over several views of each image; empty where it was not asked for."""
    figure = scenario.get("val_tta_accuracy")
    return "" if figure is None or figure["mean"] is None else f"{mean_percent(figure, 2)} {WITH_VIEWS}"


def _speedup(speedup: Mapping[str, Any]) -> str:
    if speedup["ratio"] is None:
        return speedup["words"]
    return f"{number(speedup['ratio'], 2)} × {speedup['words']}"
