"""Details: what one run has to show for itself beyond its line on the scoreboard, as lines of text."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.report.formats import NO_FIGURE, megabytes, moment, number, percent, plain, plural, yes_no
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

# Field of the record's time_breakdown → (what it is, units of it in a second, their name).
_TIMES = {
    "step_seconds": ("A step of training", 1000, "ms"),
    "step_alone_seconds": ("A step with its images at hand", 1000, "ms"),
    "input_alone_seconds": ("The input of a step alone", 1000, "ms"),
    "compilation_seconds": ("Compilation", 1, "s"),
    "evaluation_seconds": ("Evaluation", 1, "s"),
    "checkpoint_seconds": ("Checkpoints", 1, "s"),
}

_RATE = "examples_per_second"
_MOST_COLUMNS = 8


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
    seconds = [(what, _duration(parts[name], scale, unit)) for name, (what, scale, unit) in _TIMES.items()]
    return [*seconds, ("Share of a step spent waiting", percent(parts["input_wait_share"], 0))]


def evidence(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The run's hardware receipt, whatever it holds, as (place, value) of each of its leaves."""
    return [(plain(" / ".join(path), 120), _leaf(value)) for path, value in _leaves(run["receipt"] or {})]


def tuning_table(run: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What was timed before training, whatever was varied: the headings, then a row for each; empty without tuning."""
    tried = (run["tuning"] or {}).get("candidates", ())
    names = list(dict.fromkeys(name for candidate in tried for name in candidate))[:_MOST_COLUMNS]
    headings = tuple("images/s" if name == _RATE else plain(name.replace("_", " ")) for name in names)
    cells = [tuple(_timed(name, candidate.get(name)) for name in names) for candidate in tried]
    return [headings, *cells] if tried else []


def chosen(run: Mapping[str, Any]) -> str:
    """What the tuning chose, as "name value" pairs; empty where nothing was tuned."""
    choice = (run["tuning"] or {}).get("chosen") or {}
    return ", ".join(f"{plain(' / '.join(path))} {_leaf(value)}" for path, value in _leaves(choice))


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


def _timed(name: str, value: Any) -> str:
    return number(value) if name == _RATE else _leaf(value)


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
