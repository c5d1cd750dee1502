"""Details: what one run has to show for itself beyond its line on the scoreboard, as lines of text."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pipeline.report.formats import (
    NO_FIGURE,
    megabytes,
    moment,
    number,
    percent,
    plain,
    plural,
    points,
    signed,
    yes_no,
)
from pipeline.report.predictions import worst_confusions
from pipeline.report.reading import is_stand_in
from pipeline.report.wording import change_verdict, device_note, device_verified

EPOCH_HEADINGS = (
    "epoch",
    "training accuracy",
    "test accuracy",
    "training loss",
    "test loss",
    "training, s",
    "evaluation, s",
    "images/s",
    "learning rate",
)

EXPORT_HEADINGS = ("form", "size", "accuracy", "agrees with Keras")

# Field of the record's time_breakdown → (what it is, units of it in a second, their name).
_TIMES = {
    "step_seconds": ("A step of training", 1000, "ms"),
    "step_alone_seconds": ("A step with its input ready", 1000, "ms"),
    "input_alone_seconds": ("The input of a step alone", 1000, "ms"),
    "compilation_seconds": ("Compilation", 1, "s"),
}
# The same of the stage's parts, which an earlier version did not record.
_PARTS = {
    "startup_seconds": ("Start-up", 1, "s"),
    "loading_seconds": ("Loading the data", 1, "s"),
    "training_seconds": ("Training, compilation included", 1, "s"),
    "evaluation_seconds": ("Evaluation", 1, "s"),
    "checkpoint_seconds": ("Checkpoints", 1, "s"),
    "saving_seconds": ("Saving", 1, "s"),
    "measuring_seconds": ("Timing a step alone", 1, "s"),
    "profiling_seconds": ("Profiling", 1, "s"),
}
# Fields of the time_breakdown that are one part of the drawing.
_AROUND = ("startup_seconds", "loading_seconds", "measuring_seconds", "profiling_seconds")

# A larger matrix is no longer read cell by cell: its worst cells are listed instead.
_MAX_MATRIX = 25
_MAX_CONFUSIONS = 10
MAX_CLASSES = 100

_RATE = "examples_per_second"


def receipt(run: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """What a run asked for and what it got: (what, requested, effective, verified)."""
    device = f"{plain(run['effective_device'])}, {device_note(run)}".removesuffix(", ")
    data = f"{plain(run['dataset'])}, a stand-in" if is_stand_in(run) else plain(run["dataset"])
    return [
        ("Device", plain(run["requested_device"]), device, device_verified(run)),
        ("Data", plain(run["requested_dataset"]), data, yes_no(run["dataset_verified"])),
        ("Precision", plain(run["requested_precision"]), plain(run["precision"]), "not measured"),
        ("XLA", _switch(run["requested_jit_compile"]), _switch(run["jit_compile"]), "not measured"),
    ]


def tiles(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The few figures one looks for first: (what, figure with its unit)."""
    validation = run.get("validation_accuracy")
    return [
        ("Test accuracy", percent(run["val_accuracy"], 2)),
        *([("Validation accuracy", percent(validation, 2))] if validation is not None else []),
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
        ("Test loss", number(run["val_loss"], 4)),
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
    known = {name: what for name, what in _PARTS.items() if parts[name] is not None}
    seconds = [(what, _duration(parts[name], scale, unit)) for name, (what, scale, unit) in {**_TIMES, **known}.items()]
    left_out = [("Not timed alone", plain(parts["not_measured"]))] if parts["not_measured"] else []
    return [*seconds, ("Share of a step spent waiting", percent(parts["input_wait_share"], 0)), *left_out]


def seconds_by_part(run: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The run's seconds, (what, how many), of the whole stage; empty where that was not measured."""
    parts = run["time_breakdown"]
    if parts is None or run["train_seconds"] is None:
        return []
    return [
        *_training_parts(run["train_seconds"], parts["compilation_seconds"], parts["input_wait_share"]),
        ("evaluation", parts["evaluation_seconds"] or 0),
        ("checkpoints, saving", (parts["checkpoint_seconds"] or 0) + (parts["saving_seconds"] or 0)),
        ("start-up, loading, timings", sum(parts[name] or 0 for name in _AROUND)),
    ]


def _training_parts(seconds: float, compilation: float | None, share: float | None) -> list[tuple[str, float]]:
    """What is known of a training's parts; what is not is part of the computing, and its name says so."""
    compiled = min(compilation or 0, seconds)
    waiting = (seconds - compiled) * (share or 0)
    computing = "computing" if compilation is not None else "computing and compilation"
    return [
        (computing if share is not None else f"{computing}, waiting included", seconds - compiled - waiting),
        *([("waiting for input", waiting)] if share is not None else []),
        *([("compilation", compiled)] if compilation is not None else []),
    ]


def label_names(facts: Mapping[str, Any]) -> list[str]:
    """The labels of a run's evaluation, as plain text."""
    return [plain(name, 24) for name in facts["label_names"]]


def confusion_rows(facts: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, float]]]]:
    """The confusion matrix: (true label, cells), a cell its count and its share of the row; empty for many labels."""
    names = label_names(facts)
    if len(names) > _MAX_MATRIX:
        return []
    return [
        (name, [(number(count), round(count / max(1, sum(row)), 3)) for count in row])
        for name, row in zip(names, facts["confusion_matrix"], strict=True)
    ]


def confusion_lines(facts: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is most often taken for what: (true label, predicted label, images)."""
    names = label_names(facts)
    return [
        (names[true], names[given], number(count)) for true, given, count in worst_confusions(facts, _MAX_CONFUSIONS)
    ]


def class_rows(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Each label with its images, precision, recall and F1."""
    shares = ("precision", "recall", "f1")
    return [
        (name, number(entry["examples"]), *(percent(entry[share]) for share in shares))
        for name, entry in zip(label_names(facts), facts["classes"][:MAX_CLASSES], strict=False)
    ]


def mistake_rows(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[dict[str, str]]:
    """The most confident mistakes: label, prediction, confidence, index; the picture, a PNG in base64, may be empty."""
    names = label_names(facts)
    return [
        {
            "label": names[one["label"]],
            "predicted": names[one["predicted"]],
            "confidence": percent(one["confidence"]),
            "index": number(one["index"]),
            "picture": pictures[place] if place < len(pictures) else "",
        }
        for place, one in enumerate(facts["mistakes"])
    ]


def example_rows(facts: Mapping[str, Any], pictures: Sequence[str]) -> list[tuple[str, str]]:
    """A few examples of the records: (label, a PNG in base64)."""
    names = label_names(facts)
    return [(names[one["label"]], picture) for one, picture in zip(facts["examples"], pictures, strict=False)]


def count_rows(counts: Mapping[str, Mapping[str, int]]) -> list[tuple[str, ...]]:
    """Examples by label: (label, its examples in each split)."""
    labels = list(dict.fromkeys(label for split in counts.values() for label in split))[:MAX_CLASSES]
    return [(plain(label, 24), *(number(split.get(label, 0)) for split in counts.values())) for label in labels]


def export_rows(facts: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """The forms a run was exported in: (form, size, accuracy, agreement with Keras)."""
    forms = (facts or {}).get("forms", {})
    return [
        (
            plain(name),
            f"{number(form['bytes'] / 1e6, 2)} MB",
            percent(form["accuracy"], 2),
            percent(form["agreement"], 2),
        )
        for name, form in forms.items()
    ]


def group_name(group: Mapping[str, Any]) -> str:
    """What the runs of a group of the history share."""
    where = f"{plain(group['effective_device'])} ({device_note(group) or 'unknown'})"
    how = f"batch {number(group['global_batch_size'])}, {plural(group['epochs'], 'epoch')}, {plain(group['precision'])}"
    return f"{plain(group['model'])} / {plain(group['recipe'])} on {plain(group['dataset'])}, {how}, {where}"


def change_rows(changes: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """The changes since the last comparable runs: (group, figure, before, now, change, verdict)."""
    return [
        row
        for change in changes
        for row in (
            (group_name(change), "test accuracy", *_compared(change["val_accuracy"], percent, points)),
            (group_name(change), "images/s", *_compared(change[_RATE], number, signed)),
        )
    ]


def lineage_rows(stages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The stages a report comes from, each artefact with its name and (what, value) of all that made it."""
    return [
        {"stage": stage["stage"], "artefacts": [_artefact(node) for node in stage["artefacts"]]} for stage in stages
    ]


def _artefact(node: Mapping[str, Any]) -> dict[str, Any]:
    facts = [("fingerprint", plain(node["fingerprint"]))]
    if node["settings"] is None:
        facts.append(("more", "not under this storage root"))
    else:
        took, made_at = node["seconds"], plain(node["made_at"])
        facts.append(("took", f"{number(took, 1)} s" if isinstance(took, int | float) else NO_FIGURE))
        facts.append(("made", made_at))
        facts += [(plain(" / ".join(path)), _leaf(value)) for path, value in _leaves(dict(node["settings"]))]
        facts += [(plain(name), _leaf(version)) for name, version in node["packages"].items()]
    return {"name": plain(node["artefact"]), "facts": facts}


def _compared(
    figure: Mapping[str, float | None],
    show: Callable[[float | None], str],
    show_change: Callable[[float | None], str],
) -> tuple[str, ...]:
    return show(figure["baseline"]), show(figure["value"]), show_change(figure["change"]), change_verdict(figure)


def evidence(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's hardware receipt, whatever it holds, as (place, value) of each of its leaves."""
    return [(plain(" / ".join(path), 120), _leaf(value)) for path, value in _leaves(run["receipt"] or {})]


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


def _duration(seconds: float | None, scale: int, unit: str) -> str:
    return NO_FIGURE if seconds is None else f"{number(scale * seconds, 2)} {unit}"


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
