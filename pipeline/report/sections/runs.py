"""Sections about the requested runs: figures, receipt, settings, times, exports and epochs."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.problems.judged import judged
from pipeline.problems.units import NEXT_TOKEN, units_of_run
from pipeline.report import drawings
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Cell, Chart, Column, Section, Table, Text, pairs
from pipeline.report.data.measures import to_accuracy, utilisation
from pipeline.report.formats import NO_FIGURE, Run
from pipeline.report.report import Report
from pipeline.report.sections.evaluation import bits, evaluation_blocks, perplexity
from pipeline.runs.record import is_stand_in

# More would make a page longer than anyone reads. report.json contains all.
_MAX_RUNS = 24
_MAX_EVIDENCE = 100
# Drawings of more runs would make up most of the page.
_MAX_RUN_DRAWINGS = 8
_OPEN_EPOCHS = 12

# Name in the receipt → name in the report.
_RECEIPT_NAMES = {"doubts": "failed checks"}
# Field of the record's time_breakdown → its name, units per second, and unit.
_TIMES = {
    "input_alone_seconds": ("The input of a step alone", 1000, "ms"),
    "compilation_seconds": ("Compilation", 1, "s"),
}
# The parts of the stage, which an earlier version did not record.
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
# One part of the drawing.
_AROUND = ("startup_seconds", "loading_seconds", "measuring_seconds", "profiling_seconds")


def this_run(report: Report) -> Iterator[Section]:
    """The figures, settings and times of a single requested run."""
    runs = report.requested()
    if len(runs) == 1:
        (run,) = runs
        receipt = [Text("Requested and effective", kind="heading"), *receipt_blocks(run, "Requested and effective")]
        facts = [Text("Settings and results", kind="heading"), pairs(circumstances(run))]
        blocks = [pairs(tiles(run), "tiles"), Box("pair", [Box("part", receipt), Box("part", facts)])]
        yield Section("this-run", "This run", blocks)
        yield Section("times", "Time breakdown", time_blocks(run))


def exports(report: Report) -> Iterator[Section]:
    """The exported forms of a single requested run."""
    runs = report.requested()
    if len(runs) == 1:
        yield Section("exports", "Exports", export_blocks(report, runs[0], "this run"))


def requested_runs(report: Report) -> Iterator[Section]:
    """The epochs of a single requested run, or everything about each of several."""
    runs = report.requested()
    if len(runs) == 1:
        name = "This run, epoch by epoch"
        is_open = len(runs[0]["curves"]) <= _OPEN_EPOCHS
        table = epoch_table(runs[0], name)
        yield Section(
            "epochs", "Epoch by epoch", [Box("fold", [table], summary=name, is_open=is_open)] if table.rows else []
        )
        return
    folds = [_fold(report, run, place < _MAX_RUN_DRAWINGS) for place, run in enumerate(runs[:_MAX_RUNS])]
    more = fmt.left_out(len(runs) - _MAX_RUNS, "more run")
    yield Section("runs", "Requested runs", [*folds, *([Text(more)] if more else [])])


def _fold(report: Report, run: Run, with_drawings: bool) -> Box:
    name = fmt.run_name(run)
    receipt = Box("part", receipt_blocks(run, f"Requested and effective: {name}"))
    facts = [Text("Settings and results", kind="heading"), pairs(circumstances(run))]
    times, epochs = time_blocks(run), epoch_table(run, f"Epoch by epoch: {name}")
    exported = export_blocks(report, run, name)
    blocks: list[Block] = [
        pairs(tiles(run), "tiles"),
        Box("pair", [receipt, Box("part", facts)]),
        *([Text("Time breakdown", kind="heading"), *times] if times else []),
        *evaluation_blocks(report, run, name, with_drawings=with_drawings),
        *([Text("Exports", kind="heading"), *exported] if exported else []),
        *([Text("Epoch by epoch", kind="heading"), epochs] if epochs.rows else []),
    ]
    return Box("fold", blocks, summary=name, note=time_verdict(run), style="run")


def tiles(run: Run) -> list[tuple[str, str]]:
    """The most important figures with their units."""
    units = units_of_run(run)
    found = []
    if run["problem"] == NEXT_TOKEN:
        nats = run["val_loss"]
        found += [
            ("Test loss, nats", fmt.number(nats, 4)),
            (f"Bits a {units.one}", bits(nats)),
            ("Perplexity", perplexity(nats)),
        ]
    accuracies = {
        "Test accuracy with test-time augmentation": run.get("val_tta_accuracy"),
        "Validation accuracy": run.get("validation_accuracy"),
        "Validation accuracy with test-time augmentation": run.get("validation_tta_accuracy"),
    }
    return [
        *found,
        ("Test accuracy", fmt.percent(run["val_accuracy"], 2)),
        *((what, fmt.percent(one, 2)) for what, one in accuracies.items() if one is not None),
        ("Training time", f"{fmt.number(run['train_seconds'], 1)} s"),
        (fmt.capitalised(units.rate), fmt.number(run["examples_per_second"])),
        ("First epoch", f"{fmt.number(run['first_epoch_seconds'], 1)} s"),
    ]


def receipt_blocks(run: Run, label: str) -> list[Block]:
    """The requested and the effective values with their verification, and the evidence."""
    columns = (
        Column("", lambda row: row[0]),
        Column("Requested", lambda row: row[1]),
        Column("Effective", lambda row: row[2]),
        Column("Verified", lambda row: Cell(text=row[3], needs_care=row[3] == "no" or row[3].startswith("yes,"))),
    )
    found = evidence(run)
    more = fmt.left_out(len(found) - _MAX_EVIDENCE, "more line")
    details = [pairs(found[:_MAX_EVIDENCE]), *([Text(more)] if more else [])]
    fold = [Box("fold", details, summary="Hardware evidence")] if found else []
    return [Table(columns, receipt(run), label=label), *fold]


def receipt(run: Run) -> list[tuple[str, str, str, str]]:
    """(setting, requested, effective, verified)."""
    device = fmt.joined(fmt.plain(run["effective_device"]), fmt.device_note(run))
    data = f"{fmt.plain(run['dataset'])}, a stand-in" if is_stand_in(run) else fmt.plain(run["dataset"])
    if (verified := fmt.data_verified(run)) == "no reference":
        verified = "no reference checksum exists for this data set"
        digests = (
            f"{fmt.plain(split)} {fmt.plain(digest)}" for split, digest in (run["content_digests"] or {}).items()
        )
        data = "; ".join([data, *(f"sha256 of {digest}" for digest in digests)])
    return [
        ("Device", fmt.plain(run["requested_device"]), device, fmt.verified_words(fmt.verified_as(run))),
        ("Data", fmt.plain(run["requested_dataset"]), data, verified),
        ("Backend", fmt.plain(run["requested_backend"]), fmt.plain(run["backend"]), "not measured"),
        ("Precision", fmt.plain(run["requested_precision"]), fmt.plain(run["precision"]), "not measured"),
        ("XLA", _switch(run["requested_jit_compile"]), _switch(run["jit_compile"]), "not measured"),
    ]


def evidence(run: Run) -> list[tuple[str, str]]:
    """(path, value) of each leaf of the receipt, whatever it contains."""
    facts = {_RECEIPT_NAMES.get(name, name): part for name, part in (run["receipt"] or {}).items()}
    return [(fmt.plain(" / ".join(path), 120), leaf(value)) for path, value in leaves(facts)]


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of each leaf of a JSON value."""
    if not isinstance(value, dict | list):
        yield path, value
        return
    for name, child in value.items() if isinstance(value, dict) else enumerate(value, start=1):
        yield from leaves(child, (*path, str(name)))


def leaf(value: Any) -> str:
    """A leaf as text."""
    if isinstance(value, bool):
        return fmt.yes_no(value)
    return NO_FIGURE if value is None else fmt.plain(value, 200)


def _switch(value: Any) -> str:
    return {True: "on", False: "off", None: "auto"}.get(value, fmt.plain(value))


def circumstances(run: Run) -> list[tuple[str, str]]:
    """Everything else that is needed to repeat a run."""
    batch = f"{fmt.number(run['global_batch_size'])} {units_of_run(run).examples}"
    return [
        ("Model / recipe", fmt.model_and_recipe(run)),
        *_weights(run),
        ("Global batch", f"{batch} over {fmt.plural(run['num_replicas'], 'replica')}"),
        ("Seed", fmt.plain(run["seed"])),
        *_choices(run),
        ("Test loss", fmt.number(run["val_loss"], 4)),
        *_standard_error(run),
        *_to_accuracy(run),
        ("Finished", fmt.moment(run["finished_at"])),
        ("Host", fmt.plain(run["hostname"] or "unknown")),
        ("Fingerprint", fmt.plain(run["fingerprint"])),
        (
            "Peak memory",
            f"host {fmt.megabytes(run['peak_host_bytes'])}, device {fmt.megabytes(run['peak_device_bytes'])}",
        ),
    ]


def _weights(run: Run) -> Iterator[tuple[str, str]]:
    """The outputs if they are logits, and the initial and frozen weights if there are any."""
    if run["outputs"] == "logits":
        yield "Network gives", "logits; probabilities are their softmax"
    if run["initial_weights_digest"]:
        which = f"run {fmt.plain(run['initial_run'])[:12]}" if run["initial_run"] else fmt.plain(run["initial_weights"])
        yield "Initial weights", f"{which}, sha256 {fmt.plain(run['initial_weights_digest'])[:12]}"
    beginning = run.get("beginning") or {"taken": (), "left": {}, "frozen": ()}
    if examples := beginning.get("adapted_examples"):
        yield "Adapted to", f"{fmt.number(examples)} examples of train"
    for what, names in (("Layers that took them", "taken"), ("Layers that did not", "left"), ("Frozen", "frozen")):
        if beginning[names]:
            yield what, fmt.plain(", ".join(beginning[names]), 400)


def _choices(run: Run) -> Iterator[tuple[str, str]]:
    """Augmentation, the epoch that was kept, and why training ended, if the settings ask for them."""
    if run["augment"]:
        counts = "the label of the greater part counts" if "mixup" in run["augment"] else "as the network saw them"
        augmented = f"{fmt.plain(run['augment'], 120)}; training accuracy is on augmented images, {counts}"
        yield "Augmentation", augmented
    if run["keep"] != "last" and run["kept_epoch"] is not None:
        yield "Weights kept", f"epoch {fmt.number(run['kept_epoch'])}, the best on the validation split"
    if run["patience"] and run["ended"]:
        patience = f"no better epoch on the validation split in {fmt.plural(run['patience'], 'epoch')}"
        yield "Training ended", patience if run["ended"] == "patience" else "after all its epochs"


def _standard_error(run: Run) -> Iterator[tuple[str, str]]:
    reached, examples = run["val_accuracy"], run["test_examples"]
    # Characters of one sequence depend on each other, so this formula would give too little.
    independent = judged(run["problem"]).predictions_per_draw == 1
    if independent and reached is not None and examples and 0 <= reached <= 1:
        error = 100 * math.sqrt(reached * (1 - reached) / examples)
        yield "Standard error of the test accuracy", f"{fmt.number(error, 2)} points, of {fmt.number(examples)} images"


def _to_accuracy(run: Run) -> Iterator[tuple[str, str]]:
    for one in to_accuracy(run):
        flops = f"{one['flops']:.2e} FLOP" if one["flops"] is not None else ""
        seconds = f"{fmt.number(one['seconds'], 1)} s" if one["seconds"] is not None else ""
        how = " with test-time augmentation" if one["with_views"] else ""
        what = f"Training to {fmt.percent(one['goal'], 0)} test accuracy{how}"
        yield what, fmt.joined(flops, seconds, fmt.plural(one["epoch"], "epoch"))


def time_verdict(run: Run) -> str:
    """Whether the steps waited for the device or for the input. Empty if it was not measured."""
    share = (run["time_breakdown"] or {}).get("input_wait_share")
    if share is None:
        return ""
    return (
        f"input-bound: {fmt.percent(share, 0)} of each step was spent waiting for input"
        if share > 0.1
        else "compute-bound"
    )


def time_blocks(run: Run) -> list[Block]:
    """The time of the run by its parts. Empty if it was not measured."""
    if run["time_breakdown"] is None:
        return []
    words = time_verdict(run)
    finding = [Text(words, kind="finding", lead="Time breakdown")] if words else []
    parts = [(what, max(0.0, seconds)) for what, seconds in seconds_by_part(run)]
    total = sum(seconds for _, seconds in parts)
    chart = []
    if math.isfinite(total) and total:
        data = [f"{what}: {fmt.number(seconds, 1)} s" for what, seconds in parts]
        chart.append(
            Chart(
                f"Time breakdown of {fmt.run_name(run)}",
                lambda text: drawings.draw_seconds(parts, alternative_text=text),
                data,
                legend=[(words, "") for words in data],
            )
        )
    return [*finding, *chart, pairs(time_rows(run), "facts seconds")]


def time_rows(run: Run) -> list[tuple[str, str]]:
    """Seconds or shares of a step. Empty if they were not measured.

    The step that was timed alone is omitted: on a machine that became slower, a step without waiting would seem to take
    longer than one with it.
    """
    parts = run["time_breakdown"]
    if parts is None:
        return []
    step, share = parts["step_seconds"], parts["input_wait_share"]
    known = step is not None and share is not None
    present = {name: what for name, what in _PARTS.items() if parts[name] is not None}
    return [
        ("A step of training", _duration(step, 1000, "ms")),
        ("of it computing", _duration(step * (1 - share) if known else None, 1000, "ms")),
        ("of it waiting for its input", _duration(step * share if known else None, 1000, "ms")),
        ("Share of a step spent waiting", fmt.percent(share, 0)),
        *((what, _duration(parts[name], scale, unit)) for name, (what, scale, unit) in {**_TIMES, **present}.items()),
        *_operations(run),
        *([("Not timed alone", fmt.plain(parts["not_measured"]))] if parts["not_measured"] else []),
    ]


def _operations(run: Run) -> list[tuple[str, str]]:
    """The operations of a step, and their share of the device's speed."""
    shares = utilisation(run)
    if not shares:
        return []
    flops, moved = run["time_breakdown"]["step_flops"], run["time_breakdown"].get("step_bytes")
    of = {"probe": "of the probe's speed", "published": "of the published peak"}
    words = ", ".join(f"{fmt.percent(share, 0)} {of[name]}" for name, share in shares.items())
    memory = [("Memory read and written by a step", f"{fmt.number(moved / 1e6, 0)} MB")] if moved else []
    return [("Operations of a step", f"{fmt.number(flops / 1e9, 2)} GFLOP"), *memory, ("Model FLOP utilisation", words)]


def seconds_by_part(run: Run) -> list[tuple[str, float]]:
    """(part, seconds) of the whole stage. Empty if they were not measured.

    An unknown part of the training belongs to computing, whose name says so.
    """
    parts, total = run["time_breakdown"], run["train_seconds"]
    if parts is None or total is None:
        return []
    compilation, share = parts["compilation_seconds"], parts["input_wait_share"]
    compiled = min(compilation or 0, total)
    waiting = (total - compiled) * (share or 0)
    computing = "computing" if compilation is not None else "computing and compilation"
    return [
        (computing if share is not None else f"{computing}, waiting included", total - compiled - waiting),
        *([("waiting for input", waiting)] if share is not None else []),
        *([("compilation", compiled)] if compilation is not None else []),
        ("evaluation", parts["evaluation_seconds"] or 0),
        ("checkpoints, saving", (parts["checkpoint_seconds"] or 0) + (parts["saving_seconds"] or 0)),
        ("start-up, loading, timings", sum(parts[name] or 0 for name in _AROUND)),
    ]


def _duration(seconds: float | None, scale: int, unit: str) -> str:
    return NO_FIGURE if seconds is None else f"{fmt.number(scale * seconds, 2)} {unit}"


def epoch_table(run: Run, label: str) -> Table:
    """Accuracy, loss, time and throughput of each epoch."""
    shown = fmt.spread(run["curves"])
    columns = (
        Column("epoch", lambda row: fmt.number(row["epoch"]), True),
        Column("training accuracy", lambda row: fmt.percent(row["accuracy"], 2), True),
        Column("test accuracy", lambda row: fmt.percent(row["val_accuracy"], 2), True),
        Column("training loss", lambda row: fmt.number(row["loss"], 4), True),
        Column("test loss", lambda row: fmt.number(row["val_loss"], 4), True),
        Column("training, s", lambda row: fmt.number(row["train_seconds"], 2), True),
        Column("evaluation, s", lambda row: fmt.number(row["evaluation_seconds"], 2), True),
        Column("per second", lambda row: fmt.number(row["examples_per_second"]), True),
        Column("learning rate", _learning_rate, True),
    )
    more = fmt.left_out(len(run["curves"]) - len(shown), "more epoch")
    caption = f"Accuracy, loss, time and throughput of each epoch. {more}".strip()
    return Table(columns, shown, label=label, caption=caption, style="wide")


def _learning_rate(row: Mapping[str, Any]) -> str:
    return f"{row['learning_rate']:.2e}" if row["learning_rate"] is not None else NO_FIGURE


def export_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """A table of the exported forms, if there are any."""
    forms = report.exports.get(run["fingerprint"], {}).get("forms", {})
    columns = (
        Column("form", lambda one: fmt.plain(one[0])),
        Column("size", lambda one: f"{fmt.number(one[1]['bytes'] / 1e6, 2)} MB", True),
        Column("accuracy", lambda one: fmt.percent(one[1]["accuracy"], 2), True),
        Column("agrees with Keras", lambda one: fmt.percent(one[1]["agreement"], 2), True),
    )
    return [Table(columns, [*forms.items()], label=f"Exported forms: {name}", style="classes")] if forms else []


def skipped_files(skipped: Mapping[str, int]) -> str:
    """The number of unusable files of a source by reason. Empty if there are none."""
    if not skipped:
        return ""
    reasons = "; ".join(f"{fmt.plain(reason)}: {fmt.number(count)}" for reason, count in skipped.items())
    files = fmt.plural(sum(skipped.values()), "file")
    return f"{files} of the source cannot be used: {reasons}. skipped.csv beside the records lists them."
