"""Section of runs, with command, settings, files, metrics, receipt, times, evaluation and exports."""

import math
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any
from urllib.parse import quote

from pipeline.artifacts import layout
from pipeline.optional_packages import DISTRIBUTION
from pipeline.problems.results import results_of
from pipeline.report import formats as fmt
from pipeline.report.blocks import Block, Box, Cell, Chart, Facts, Links, Section, Table, Text, numbers, titled, words
from pipeline.report.data.measures import to_accuracy, utilization
from pipeline.report.data.reading import Run, call_hook, leaves
from pipeline.report.data.scoreboard import has_other_data
from pipeline.report.formats import MISSING
from pipeline.report.report import Report
from pipeline.report.sections.scoreboard import ranking_metric, setting_word
from pipeline.runs.record import FINISHED, Beginning, Origin
from pipeline.settings import SECTIONS
from pipeline.settings.schema import settings_of

# These limit the length of the page. report.json contains everything.
_MAX_FULL, _MAX_RUNS = 24, 500
_MAX_COMMAND, _MAX_EVIDENCE = 8_000, 100
_CLONE = "In a clone, activate the environment first with: source .venv/bin/activate"
_RETRAIN = "It trains nothing if the run is fresh. To retrain, add --Force-stage=Train."
# Advice after the verdict on the time of a step.
_FASTER_INPUT = "[Train] cache = memory, or [Records] encoding = raw for images, reduces the wait."
_FASTER_MODEL = "A smaller model, another precision or an accelerator can be faster."

# These times share a segment of the bar.
_OTHER_TIMES = ("startup_seconds", "loading_seconds", "measuring_seconds", "profiling_seconds")

_Pairs = Iterator[tuple[str, str]]


def runs(report: Report) -> Iterator[Section]:
    """Yield an entry per run, the best one first, then the requested runs, then the newest.

    The first entries have all details. The others have the command, the code and links.
    """
    entries, folds, anchors = report.ordered(), [], set()
    for index, run in enumerate(entries[:_MAX_RUNS]):
        name = fmt.run_name(run, report.current)
        blocks = _repeat(report, run)
        if index == 0 or (run.fingerprint in report.current and index < _MAX_FULL):
            receipt = titled("Requested and effective", *receipt_blocks(run, f"Requested and effective: {name}"))
            facts = titled("Settings and results", Facts(list(circumstances(run))))
            blocks = [
                Facts(list(tiles(run)), "tiles"),
                *blocks,
                *titled("Time", *time_blocks(run)),
                Box("pair", [Box("part", receipt), Box("part", facts)]),
                # The first one has a section.
                *(evaluation_blocks(report, run, name) if index else ()),
                *titled("Exports", _exports(report, run, name)),
                _settings(run),
            ]
        note, is_open = time_verdict(run).partition(":")[0], index == 0 or report.current == [run.fingerprint]
        # A copy from another host has the same fingerprint.
        anchor = fmt.run_anchor(run) if fmt.run_anchor(run) not in anchors else ""
        anchors.add(anchor)
        folds.append(Box("fold", blocks, name, note, is_open, style="run", anchor=anchor))
    hint = Text(_CLONE if any(run.origin for run in entries) else "", "note")
    yield Section("runs", "Runs", [hint, *folds, Text(fmt.left_out(len(entries) - _MAX_RUNS, "more run"))])


def _repeat(report: Report, run: Run) -> list[Block]:
    """Return the command that repeats a run, its code and model size, and links to its files."""
    folder = f"../{layout.RUNS}/{quote(run.path.name)}/"
    links = [("Folder of the run", folder), *((name, f"{folder}{name}") for name in run.files)] if run.files else []
    origin = run.origin or Origin()
    command, note = (origin.command(), f"The command repeats this run. {_RETRAIN}") if run.origin else ("", "")
    newest = next((one for one in report.runs if one.experiment == run.experiment and one.status == FINISHED), run)
    if command and has_other_data(run, newest):
        note += " The data have changed since, so the command gives another result."
    # A command that is shortened or has control characters would be another one.
    if fmt.plain(command, _MAX_COMMAND) != command:
        command = note = ""
    chosen = ", ".join(f"{name} = {fmt.plain(str(value)) or 'none'}" for name, value in run.chosen.items())
    trainable = f"of which {fmt.number(run.num_trainable_parameters)} are trainable"
    code = _known(
        ("Chosen for auto", chosen),
        ("Commit", f"{fmt.plain(origin.commit or '')}{', with uncommitted changes' * bool(origin.is_dirty)}"),
        ("Version", origin.version and f"{DISTRIBUTION} {fmt.plain(origin.version)}"),
        ("Parameters", run.num_parameters is not None and f"{fmt.number(run.num_parameters)}, {trainable}"),
        ("Model size", run.model_bytes is not None and fmt.number(run.model_bytes, 2, " MB", 1e-6)),
    )
    blocks = Text(command, "command"), Text(note, "note"), Facts(list(code))
    return [*titled("Repeat this run", *blocks), Links(links)]


def _layers(names: Iterable[str]) -> str:
    names = [fmt.plain(name, 60) for name in names]
    return f"{len(names)}, from {names[0]} to {names[-1]}" if len(names) > 2 else fmt.joined(*names)


def _known(*facts: tuple[str, str | bool | None]) -> _Pairs:
    return ((label, text) for label, text in facts if text)


def _settings(run: Run) -> Box:
    defaults = {
        (section.section, setting.name): setting.written(setting.default)
        for section in SECTIONS
        for setting in settings_of(section)
    }
    rows = [
        (fmt.plain(f"[{section}] {name}"), fmt.plain(text, 200) or MISSING, defaults.get((section, name)) or MISSING)
        for section, texts in (run.origin or Origin()).settings.items()
        for name, text in texts.items()
    ]
    title = "Settings that differ from their defaults"
    table = Table(words("Setting", "Value", "Default"), rows, f"{title}: {fmt.run_name(run)}", style="classes")
    return Box("fold", [table], title)


def tiles(run: Run) -> _Pairs:
    """Yield the most important metrics with their units."""
    yield from call_hook(run.problem, "tiles", run) or ()
    for split in ("test", "validation"):
        for name, ending in (("accuracy", ""), ("tta_accuracy", " with test-time augmentation")):
            if (metric := getattr(run, f"{split}_{name}")) is not None:
                yield f"{split.capitalize()} accuracy{ending}", fmt.percent(metric, 2)
    yield "Training time", fmt.number(run.train_seconds, 1, " s")
    yield run.units.rate.capitalize(), fmt.number(run.examples_per_second)
    yield "First epoch", fmt.number(run.first_epoch_seconds, 1, " s")


def receipt_blocks(run: Run, label: str) -> list[Block]:
    """Return requested and effective values with their verification, and the evidence."""
    verified, data_verified = fmt.device_verified(run), fmt.data_verified(run)
    data = "placeholder data" if run.is_placeholder else fmt.plain(run.dataset)
    has_data = fmt.NO_REFERENCE if data_verified == "no reference" else data_verified
    device = fmt.joined(fmt.plain(run.effective_device), fmt.device_note(run))
    device_cell = Cell(device, [fmt.plain(run.device_reason or "", 200)])
    rows = [
        ("Device", fmt.plain(run.requested_device), device_cell, Cell(verified, needs_care=verified != "yes")),
        ("Data", fmt.plain(run.requested_dataset), data, Cell(has_data, needs_care=has_data == "no")),
        ("Backend", fmt.plain(run.requested_backend), fmt.plain(run.backend), "not measured"),
        ("Precision", fmt.plain(run.requested_precision), fmt.plain(run.precision), "not measured"),
        ("XLA", setting_word(run.requested_jit_compile), setting_word(run.jit_compile), "not measured"),
    ]
    table = Table(words("", "Requested", "Effective", "Verified"), rows, label=label)
    evidence = [(fmt.plain(" / ".join(path), 120), _evidence(value)) for path, value in leaves(run.receipt or {})]
    more = Text(fmt.left_out(len(evidence) - _MAX_EVIDENCE, "more line"))
    return [table, Box("fold", [Facts(evidence[:_MAX_EVIDENCE]), more], summary="Hardware evidence")]


def _evidence(value: Any) -> str:
    return fmt.yes_no(value) if isinstance(value, bool) else MISSING if value is None else fmt.plain(value, 200)


def circumstances(run: Run) -> _Pairs:
    """Yield all other facts that are needed to repeat a run."""
    beginning, weights = run.beginning or Beginning(), fmt.plain(run.initial_weights_digest)[:12]
    source = f"run {run.initial_run[:12]}" if run.initial_run else run.initial_weights or "ImageNet"
    selected = run.keep != "last" and run.kept_epoch is not None
    no_better = f"after {fmt.plural(run.patience, 'epoch')} without a better one on the validation split"
    ended = {None: "", "patience": no_better, "epochs": "after all epochs"}[run.ended]
    by = ", by the label with the larger share" if "mixup" in run.augment else ""
    augmented = f"{fmt.plain(run.augment, 120)}. Training accuracy counts augmented images{by}."
    batch = f"{fmt.number(run.global_batch_size)} {run.units.examples}"
    yield from _known(
        ("Model output", run.outputs == "logits" and "logits (their softmax gives probabilities)"),
        ("Initial weights", weights and f"{fmt.plain(source)}, sha256 {weights}"),
        ("Adapted on", beginning.adapted_examples and f"{fmt.number(beginning.adapted_examples)} train examples"),
        ("Layers with initial weights", _layers(beginning.taken)),
        ("Layers without initial weights", _layers(beginning.left)),
        ("Features of frozen layers", beginning.features and f"{fmt.plain(beginning.features, 20)} by this run"),
        ("Frozen", _layers(beginning.frozen)),
        ("Global batch", f"{batch} over {fmt.plural(run.num_replicas, 'replica')}"),
        ("Augmentation", run.augment and augmented),
        ("Selected weights", selected and f"epoch {fmt.number(run.kept_epoch)}, the best on the validation split"),
        ("Training ended", run.patience and ended),
        ("Test loss", fmt.number(run.test_loss, 4)),
    )
    for goal in to_accuracy(run):
        flops = "" if goal.flops is None else f"{goal.flops:.2e} FLOP"
        seconds = "" if goal.seconds is None else fmt.number(goal.seconds, 1, " s")
        suffix = " with test-time augmentation" if goal.with_views else ""
        label = f"Training to {fmt.percent(goal.accuracy, 0)} test accuracy{suffix}"
        yield label, fmt.joined(flops, seconds, fmt.plural(goal.epoch, "epoch"))
    yield "Finished", fmt.moment(run.finished_at)
    yield "Host", fmt.plain(run.hostname or "unknown")
    yield "Fingerprint", fmt.plain(run.fingerprint)
    yield from ((f"sha256 of {fmt.plain(name)}", fmt.plain(sha)) for name, sha in (run.content_digests or {}).items())
    host, device = (fmt.number(peak, 0, " MB", 1e-6) for peak in (run.peak_host_bytes, run.peak_device_bytes))
    yield "Peak memory", f"host {host}, device {device}"


def time_verdict(run: Run) -> str:
    """Return the part of the stage that took the most time, as a sentence. Empty if it is not known."""
    parts = seconds_by_part(run)
    total = sum(seconds for _, seconds in parts)
    share = run.time_breakdown and run.time_breakdown.input_wait_share
    longest, seconds = max(parts, key=itemgetter(1), default=("", 0))
    if not (math.isfinite(total) and seconds > 0):
        return ""
    if longest not in [label for label, _ in parts[: 1 if share is None else 2]]:
        of_stage = f"{fmt.percent(seconds / total, 0)} of the {fmt.number(total, 1)} s of the stage"
        return f"{'dominated by' if 2 * seconds > total else 'the largest part of the time is'} {longest}: {of_stage}"
    if share is None:
        return ""
    kind, advice = ("input", _FASTER_INPUT) if share > 0.1 else ("compute", _FASTER_MODEL)
    return f"{kind}-bound: {fmt.percent(share, 0)} of each step was spent waiting for input. {advice}"


def time_blocks(run: Run) -> list[Block]:
    """Return the time of the run by its parts. Empty if not measured."""
    parts = seconds_by_part(run)
    total = sum(seconds for _, seconds in parts)
    chart = Chart(
        f"Time breakdown of {fmt.run_name(run)}",
        shares=[seconds / total for _, seconds in parts if total],
        legend=[(f"{label}: {fmt.number(seconds, 1)} s", "") for label, seconds in parts],
    )
    charts = [chart] if math.isfinite(total) and total else []
    rows = Facts(list(time_rows(run)), "facts seconds")
    return [Text(time_verdict(run), "finding"), *charts, Box("fold", [rows], "Times of a step")]


def time_rows(run: Run) -> _Pairs:
    """Yield seconds or shares of a step. Empty if not measured.

    The benchmark of the step alone is omitted. If the machine became slower in between, it would exceed the step in
    training.
    """
    times = run.time_breakdown
    if times is None:
        return
    step, share = times.step_seconds, times.input_wait_share
    yield "Training step", fmt.number(step, 2, " ms", 1000)
    waiting = fmt.number(step, 2, " ms", 1000 * (math.nan if share is None else share))
    yield "Waiting for input per step", fmt.joined(waiting, "" if share is None else fmt.percent(share, 0))
    yield "Input of a step alone", fmt.number(times.input_alone_seconds, 2, " ms", 1000)
    if shares := utilization(run):
        yield "Operations per step", fmt.number(times.step_flops, 2, " GFLOP", 1e-9)
        if traffic := times.step_bytes:
            yield "Memory traffic per step", fmt.number(traffic, 0, " MB", 1e-6)
        reference = {"probe": "of the probe's speed", "published": "of the published peak"}
        speeds = ", ".join(f"{fmt.percent(share, 0)} {reference[name]}" for name, share in shares.items())
        yield "Model FLOP utilization", speeds
    if times.not_measured:
        yield "Not benchmarked", fmt.plain(times.not_measured)


def seconds_by_part(run: Run) -> list[tuple[str, float]]:
    """Return (part, seconds) of the whole stage. Empty if not measured.

    The label of computing names any part of the training that is not known separately.
    """
    times, total = run.time_breakdown, run.train_seconds
    if times is None or total is None:
        return []
    compilation, share = times.compilation_seconds, times.input_wait_share
    compiled = min(compilation or 0, total)
    waiting = (total - compiled) * (share or 0)
    computing = "computing" if compilation is not None else "computing and compilation"
    parts = {
        computing if share is not None else f"{computing}, including waiting": total - compiled - waiting,
        "waiting for input": None if share is None else waiting,
        "compilation": None if compilation is None else compiled,
        "evaluation": times.evaluation_seconds or 0,
        "checkpoints, saving": (times.checkpoint_seconds or 0) + (times.saving_seconds or 0),
        "start-up, loading, benchmarking": sum(getattr(times, name) or 0 for name in _OTHER_TIMES),
    }
    return [(label, max(0.0, seconds)) for label, seconds in parts.items() if seconds is not None]


def _exports(report: Report, run: Run, name: str) -> Table:
    exported = report.exports.get(run.fingerprint)
    rows = [
        (
            fmt.plain(form),
            fmt.number(export.bytes, 2, " MB", 1e-6),
            *(fmt.percent(share, 2) for share in (export.accuracy, export.agreement)),
            fmt.number(export.milliseconds, 2, " ms"),
            fmt.number(export.examples_per_second, 0, f" {run.units.rate}"),
        )
        for form, export in (exported.forms if exported else {}).items()
    ]
    measures = ("agreement with Keras", "time of one example", "speed in batches of 32")
    columns = [*words("format"), *numbers("size", results_of(run.problem).accuracy_name, *measures)]
    return Table(columns, rows, label=f"Exported formats: {name}", style="classes")


def evaluation(report: Report) -> Iterator[Section]:
    """Yield the evaluation of the best run."""
    for run in report.ordered()[:1]:
        title = f"{results_of(run.problem).evaluation_title} of the best run"
        blocks = evaluation_blocks(report, run, "the best run")
        num_seeds, metric = len(report.row_of(run).seeds), run.ranking.metric.replace("_", " ")
        # Its metrics differ from the mean of the row.
        which = f"the {'better' if num_seeds == 2 else 'median'} {metric} ({ranking_metric(run, run)})"
        note = f"The best row has {num_seeds} runs. Shown is seed {fmt.number(run.seed)}, which has {which}."
        yield Section("evaluation", title, [Text(note if num_seeds > 1 else "", "note"), *blocks] if blocks else [])


def evaluation_blocks(report: Report, run: Run, name: str) -> list[Block]:
    """Return the blocks of a run's evaluation from its problem's section, or nothing."""
    return (run.evaluation and call_hook(run.problem, "evaluation_blocks", report, run, name)) or []
