"""Sections about the requested runs: figures, receipt, settings, times, exports and epochs."""

import math
from collections.abc import Iterator
from typing import Any

from pipeline.problems.results import results_of
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Cell, Chart, Facts, Section, Table, Text, figures, titled, words
from pipeline.report.data.measures import to_accuracy, utilization
from pipeline.report.data.reading import Run, call_hook
from pipeline.report.formats import NO_FIGURE
from pipeline.report.report import Report
from pipeline.runs.record import Beginning

# More would make a page longer than anyone reads. report.json contains all.
_MAX_RUNS = 24
_MAX_EVIDENCE = 100
_OPEN_EPOCHS = 12

# Field of the record's time_breakdown → its name. Earlier versions recorded the first one only.
_TIMES = {
    "compilation_seconds": "Compilation",
    "startup_seconds": "Start-up",
    "loading_seconds": "Loading the data",
    "training_seconds": "Training, compilation included",
    "evaluation_seconds": "Evaluation",
    "checkpoint_seconds": "Checkpoints",
    "saving_seconds": "Saving",
    "measuring_seconds": "Timing a step alone",
    "profiling_seconds": "Profiling",
}
# One part of the drawing.
_AROUND = ("startup_seconds", "loading_seconds", "measuring_seconds", "profiling_seconds")


def this_run(report: Report) -> Iterator[Section]:
    """The figures, settings and times of a single requested run."""
    runs = report.requested()
    if len(runs) == 1:
        receipt = titled("Requested and effective", *receipt_blocks(runs[0], "Requested and effective"))
        yield Section("this-run", "This run", _figures_and_settings(runs[0], receipt))
        yield Section("times", "Time breakdown", time_blocks(runs[0]))


def requested_runs(report: Report) -> Iterator[Section]:
    """The exports and epochs of a single requested run, or everything about each of several."""
    runs = report.requested()
    if len(runs) == 1:
        yield Section("exports", "Exports", [export_table(report, runs[0], "this run")])
        name, is_open = "This run, epoch by epoch", len(runs[0].curves) <= _OPEN_EPOCHS
        fold = Box("fold", [epoch_table(runs[0], name)], summary=name, is_open=is_open)
        yield Section("epochs", "Epoch by epoch", [fold])
        return
    folds = [_fold(report, run) for run in runs[:_MAX_RUNS]]
    yield Section("runs", "Requested runs", [*folds, Text(fmt.left_out(len(runs) - _MAX_RUNS, "more run"))])


def _fold(report: Report, run: Run) -> Box:
    name = fmt.run_name(run)
    blocks = [
        *_figures_and_settings(run, receipt_blocks(run, f"Requested and effective: {name}")),
        *titled("Time breakdown", *time_blocks(run)),
        *evaluation_blocks(report, run, name),
        *titled("Exports", export_table(report, run, name)),
        *titled("Epoch by epoch", epoch_table(run, f"Epoch by epoch: {name}")),
    ]
    return Box("fold", blocks, summary=name, note=time_verdict(run), style="run")


def _figures_and_settings(run: Run, receipt: list[Block]) -> list[Block]:
    settings = titled("Settings and results", Facts(list(circumstances(run))))
    return [Facts(list(tiles(run)), "tiles"), Box("pair", [Box("part", receipt), Box("part", settings)])]


def tiles(run: Run) -> Iterator[tuple[str, str]]:
    """The most important figures with their units."""
    units = run.units
    yield from call_hook(run.problem, "tiles", run) or ()
    yield "Test accuracy", fmt.percent(run.test_accuracy, 2)
    for what, name in (
        ("Test accuracy with test-time augmentation", "test_tta_accuracy"),
        ("Validation accuracy", "validation_accuracy"),
        ("Validation accuracy with test-time augmentation", "validation_tta_accuracy"),
    ):
        if (metric := getattr(run, name)) is not None:
            yield what, fmt.percent(metric, 2)
    yield "Training time", fmt.number(run.train_seconds, 1, " s")
    yield fmt.capitalized(units.rate), fmt.number(run.examples_per_second)
    yield "First epoch", fmt.number(run.first_epoch_seconds, 1, " s")


def receipt_blocks(run: Run, label: str) -> list[Block]:
    """The requested and the effective values with their verification, and the evidence."""
    verified, data_verified = fmt.device_verified(run), fmt.data_verified(run)
    data = "placeholder data" if run.is_placeholder else fmt.plain(run.dataset)
    if data_verified == "no reference":
        data_verified = "no reference checksum exists for this data set"
        digests = (run.content_digests or {}).items()
        data = "; ".join([data, *(f"sha256 of {fmt.plain(split)} {fmt.plain(digest)}" for split, digest in digests)])
    device = fmt.joined(fmt.plain(run.effective_device), fmt.device_note(run))
    rows = [
        ("Device", fmt.plain(run.requested_device), device, Cell(verified, needs_care=verified != "yes")),
        ("Data", fmt.plain(run.requested_dataset), data, Cell(data_verified, needs_care=data_verified == "no")),
        ("Backend", fmt.plain(run.requested_backend), fmt.plain(run.backend), "not measured"),
        ("Precision", fmt.plain(run.requested_precision), fmt.plain(run.precision), "not measured"),
        ("XLA", _switch(run.requested_jit_compile), _switch(run.jit_compile), "not measured"),
    ]
    table = Table(words("", "Requested", "Effective", "Verified"), rows, label=label)
    # Receipts of earlier versions call failed checks doubts.
    labels = dict.fromkeys(("doubts", "failed_checks"), "failed checks")
    receipt = {labels.get(name, name): part for name, part in (run.receipt or {}).items()}
    evidence = [(fmt.plain(path, 120), value) for path, value in leaves(receipt)]
    more = Text(fmt.left_out(len(evidence) - _MAX_EVIDENCE, "more line"))
    return [table, Box("fold", [Facts(evidence[:_MAX_EVIDENCE]), more], summary="Hardware evidence")]


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path, text) of each leaf of a JSON value."""
    if isinstance(value, dict | list):
        for name, child in value.items() if isinstance(value, dict) else enumerate(value, start=1):
            yield from leaves(child, f"{path} / {name}" if path else str(name))
    elif isinstance(value, bool):
        yield path, fmt.yes_no(value)
    else:
        yield path, NO_FIGURE if value is None else fmt.plain(value, 200)


def _switch(value: Any) -> str:
    return {True: "on", False: "off", None: "auto"}.get(value, fmt.plain(value))


def circumstances(run: Run) -> Iterator[tuple[str, str]]:
    """Everything else that is needed to repeat a run."""
    batch = f"{fmt.number(run.global_batch_size)} {run.units.examples}"
    yield "Model / recipe", fmt.model_and_recipe(run)
    yield from _weights(run)
    yield "Global batch", f"{batch} over {fmt.plural(run.num_replicas, 'replica')}"
    yield "Seed", fmt.plain(run.seed)
    yield from _choices(run)
    yield "Test loss", fmt.number(run.test_loss, 4)
    reached, examples = run.test_accuracy, run.test_examples
    # Characters of one sequence depend on each other, so this formula would give too little.
    independent = results_of(run.problem).ranking.predictions_per_draw == 1
    if independent and reached is not None and examples and 0 <= reached <= 1:
        error = 100 * math.sqrt(reached * (1 - reached) / examples)
        counted = f"{fmt.number(examples)} {run.units.many}"
        yield "Standard error of the test accuracy", f"{fmt.number(error, 2)} points, of {counted}"
    for one in to_accuracy(run):
        flops = f"{one.flops:.2e} FLOP" if one.flops is not None else ""
        seconds = fmt.number(one.seconds, 1, " s") if one.seconds is not None else ""
        how = " with test-time augmentation" if one.with_views else ""
        what = f"Training to {fmt.percent(one.accuracy, 0)} test accuracy{how}"
        yield what, fmt.joined(flops, seconds, fmt.plural(one.epoch, "epoch"))
    yield "Finished", fmt.moment(run.finished_at)
    yield "Host", fmt.plain(run.hostname or "unknown")
    yield "Fingerprint", fmt.plain(run.fingerprint)
    host, device = (fmt.number(peak, 0, " MB", 1e-6) for peak in (run.peak_host_bytes, run.peak_device_bytes))
    yield "Peak memory", f"host {host}, device {device}"


def _weights(run: Run) -> Iterator[tuple[str, str]]:
    """The outputs if they are logits, and the initial and frozen weights if there are any."""
    if run.outputs == "logits":
        yield "Network gives", "logits; probabilities are their softmax"
    if run.initial_weights_digest:
        which = f"run {fmt.plain(run.initial_run)[:12]}" if run.initial_run else fmt.plain(run.initial_weights)
        yield "Initial weights", f"{which}, sha256 {fmt.plain(run.initial_weights_digest)[:12]}"
    beginning = run.beginning or Beginning()
    if beginning.adapted_examples:
        yield "Adapted to", f"{fmt.number(beginning.adapted_examples)} examples of train"
    layers = {
        "Layers that took them": beginning.taken,
        "Layers that did not": beginning.left,
        "Frozen": beginning.frozen,
    }
    yield from ((what, fmt.plain(", ".join(names), 400)) for what, names in layers.items() if names)


def _choices(run: Run) -> Iterator[tuple[str, str]]:
    """Augmentation, the epoch that was kept, and why training ended, if the settings ask for them."""
    if run.augment:
        counts = "the label of the greater part counts" if "mixup" in run.augment else "as the network saw them"
        augmented = f"{fmt.plain(run.augment, 120)}; training accuracy is on augmented images, {counts}"
        yield "Augmentation", augmented
    if run.keep != "last" and run.kept_epoch is not None:
        yield "Weights kept", f"epoch {fmt.number(run.kept_epoch)}, the best on the validation split"
    if run.patience and run.ended:
        patience = f"no better epoch on the validation split in {fmt.plural(run.patience, 'epoch')}"
        yield "Training ended", patience if run.ended == "patience" else "after all its epochs"


def time_verdict(run: Run) -> str:
    """Whether the steps waited for the device or for the input. Empty if it was not measured."""
    share = run.time_breakdown and run.time_breakdown.input_wait_share
    if share is None:
        return ""
    waiting = f"input-bound: {fmt.percent(share, 0)} of each step was spent waiting for input"
    return waiting if share > 0.1 else "compute-bound"


def time_blocks(run: Run) -> list[Block]:
    """The time of the run by its parts. Empty if it was not measured."""
    parts = [(what, max(0.0, seconds)) for what, seconds in seconds_by_part(run)]
    total = sum(seconds for _, seconds in parts)
    chart = Chart(
        f"Time breakdown of {fmt.run_name(run)}",
        shares=[seconds / total for _, seconds in parts if total],
        legend=[(f"{what}: {fmt.number(seconds, 1)} s", "") for what, seconds in parts],
    )
    known = [chart] if math.isfinite(total) and total else []
    return [Text(time_verdict(run), kind="finding"), *known, Facts(list(time_rows(run)), "facts seconds")]


def time_rows(run: Run) -> Iterator[tuple[str, str]]:
    """Seconds or shares of a step. Empty if they were not measured.

    The step that was timed alone is omitted: on a machine that became slower, a step without waiting would seem to take
    longer than one with it.
    """
    parts = run.time_breakdown
    if parts is None:
        return
    step, share = parts.step_seconds, parts.input_wait_share
    waiting = math.nan if share is None else share
    yield "A step of training", fmt.number(step, 2, " ms", 1000)
    yield "of it computing", fmt.number(step, 2, " ms", 1000 * (1 - waiting))
    yield "of it waiting for its input", fmt.number(step, 2, " ms", 1000 * waiting)
    yield "Share of a step spent waiting", fmt.percent(share, 0)
    yield "The input of a step alone", fmt.number(parts.input_alone_seconds, 2, " ms", 1000)
    for name, what in _TIMES.items():
        seconds = getattr(parts, name)
        if name == "compilation_seconds" or seconds is not None:
            yield what, fmt.number(seconds, 2, " s")
    if shares := utilization(run):
        yield "Operations of a step", fmt.number(parts.step_flops, 2, " GFLOP", 1e-9)
        if moved := parts.step_bytes:
            yield "Memory read and written by a step", fmt.number(moved, 0, " MB", 1e-6)
        of = {"probe": "of the probe's speed", "published": "of the published peak"}
        speeds = ", ".join(f"{fmt.percent(share, 0)} {of[name]}" for name, share in shares.items())
        yield "Model FLOP utilization", speeds
    if parts.not_measured:
        yield "Not timed alone", fmt.plain(parts.not_measured)


def seconds_by_part(run: Run) -> list[tuple[str, float]]:
    """(part, seconds) of the whole stage. Empty if they were not measured.

    An unknown part of the training belongs to computing, whose name says so.
    """
    parts, total = run.time_breakdown, run.train_seconds
    if parts is None or total is None:
        return []
    compilation, share = parts.compilation_seconds, parts.input_wait_share
    compiled = min(compilation or 0, total)
    waiting = (total - compiled) * (share or 0)
    computing = "computing" if compilation is not None else "computing and compilation"
    return [
        (computing if share is not None else f"{computing}, waiting included", total - compiled - waiting),
        *([("waiting for input", waiting)] if share is not None else []),
        *([("compilation", compiled)] if compilation is not None else []),
        ("evaluation", parts.evaluation_seconds or 0),
        ("checkpoints, saving", (parts.checkpoint_seconds or 0) + (parts.saving_seconds or 0)),
        ("start-up, loading, timings", sum(getattr(parts, name) or 0 for name in _AROUND)),
    ]


def epoch_table(run: Run, label: str) -> Table:
    """Accuracy, loss, time and throughput of each epoch."""
    titles = ("training accuracy", "test accuracy", "training loss", "test loss", "training, s", "evaluation, s")
    shown = fmt.spread(run.curves)
    rows = [
        (
            fmt.number(row.epoch),
            fmt.percent(row.accuracy, 2),
            fmt.percent(row.test_accuracy, 2),
            fmt.number(row.loss, 4),
            fmt.number(row.test_loss, 4),
            fmt.number(row.train_seconds, 2),
            fmt.number(row.evaluation_seconds, 2),
            fmt.number(row.examples_per_second),
            NO_FIGURE if row.learning_rate is None else f"{row.learning_rate:.2e}",
        )
        for row in shown
    ]
    more = fmt.left_out(len(run.curves) - len(shown), "more epoch")
    caption = f"Accuracy, loss, time and throughput of each epoch. {more}".strip()
    columns = figures("epoch", *titles, "per second", "learning rate")
    return Table(columns, rows, label=label, caption=caption, style="wide")


def export_table(report: Report, run: Run, name: str) -> Table:
    """The exported forms."""
    exported = report.exports.get(run.fingerprint)
    rows = [
        (
            fmt.plain(form),
            fmt.number(one.bytes, 2, " MB", 1e-6),
            fmt.percent(one.accuracy, 2),
            fmt.percent(one.agreement, 2),
        )
        for form, one in (exported.forms if exported else {}).items()
    ]
    columns = [*words("form"), *figures("size", "accuracy", "agrees with Keras")]
    return Table(columns, rows, label=f"Exported forms: {name}", style="classes")


def evaluation(report: Report) -> Iterator[Section]:
    """The evaluation of a single requested run."""
    runs = report.requested()
    if len(runs) == 1:
        yield Section("evaluation", "Evaluation", evaluation_blocks(report, runs[0], "this run"))


def evaluation_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """The blocks of a run's evaluation, in the section of its problem. Empty if it has none."""
    return (run.evaluation and call_hook(run.problem, "evaluation_blocks", report, run, name)) or []
