"""Tuning: measures how a network is best computed here, on the real model and the real stream (training's aid).

One thing is varied at a time, from what the rules choose: precision and XLA together, then steps in one execution, then
where the examples are read from. Another than the rules' choice is taken only where it is faster by more than noise.
"""

import itertools
import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pipeline import hardware
from pipeline.artefacts.manifest import check_contents, read_manifest
from pipeline.config import TrainSettings
from pipeline.stream import InputStream, Split
from pipeline.training.breakdown import input_alone_seconds, step_alone_seconds
from pipeline.training.computation import IN_MEMORY, Computation, by_rule, compiled_model

# Another choice must be faster than the rules' by this share: medians of the same computation differ by less.
MARGIN = 0.05

_logger = logging.getLogger(__name__)


def tune(records_folder: Path, settings: TrainSettings) -> dict:
    """Time a few dozen steps of each sensible computation.

    XLA on a CPU is none: it makes these networks four times slower and takes long to compile.

    Returns:
        Plain JSON data: ``chosen`` and ``rule``, each the fields of Computation; ``candidates``, each with them and
        ``examples_per_second``, of the input alone where only the input was varied (``timed``: "step" or "input").

    Raises:
        DamagedArtefactError, HardwareMismatchError, SettingsError: as in training.
    """
    manifest = read_manifest(records_folder)
    check_contents(records_folder, manifest)
    placement = hardware.place(settings)
    streams = _streams(records_folder, manifest, settings)
    stream = next(iter(streams.values()))
    rule = replace(by_rule(settings, placement), in_memory=stream.in_memory)
    rows: list[dict] = []

    def speed(computation: Computation) -> float:
        model = compiled_model(manifest, settings, placement.strategy, computation, stream.steps_per_epoch)
        return _note(rows, "step", computation, settings.global_batch_size / step_alone_seconds(model, stream))

    chosen, best = rule, speed(rule)
    chosen, best = _fastest(chosen, best, _arithmetic(settings, placement.effective_device, rule), speed)
    chosen, _ = _fastest(chosen, best, _executions(placement.num_replicas, chosen), speed)

    def input_speed(in_memory: bool) -> float:
        seconds = input_alone_seconds(streams[in_memory])
        return _note(rows, "input", replace(chosen, in_memory=in_memory), settings.global_batch_size / seconds)

    speeds = {in_memory: input_speed(in_memory) for in_memory in streams}
    chosen = replace(chosen, in_memory=max(speeds, key=speeds.__getitem__))
    return {"chosen": chosen.to_json(), "rule": rule.to_json(), "candidates": rows}


def _streams(folder: Path, manifest: Mapping, settings: TrainSettings) -> dict[bool, InputStream]:
    """In memory or not → stream; the one that is taken by itself comes first."""
    split = Split.of_manifest(folder, manifest, "train")
    how = {"global_batch_size": settings.global_batch_size, "seed": settings.seed}
    stream = InputStream(split, **how, in_memory=IN_MEMORY[settings.cache])
    from_disk = (
        {False: InputStream(split, **how, in_memory=False)} if settings.cache == "auto" and stream.in_memory else {}
    )
    return {stream.in_memory: stream, **from_disk}


def _arithmetic(settings: TrainSettings, device: str, rule: Computation) -> list[Computation]:
    precisions = ("float32", "bfloat16") if settings.precision == "auto" else (rule.precision,)
    with_xla = (False, True) if settings.jit_compile == "auto" and device != "cpu" else (rule.jit_compile,)
    pairs = itertools.product(precisions, with_xla)
    return [replace(rule, precision=precision, jit_compile=xla) for precision, xla in pairs]


def _executions(num_replicas: int, chosen: Computation) -> list[Computation]:
    counts = (1, 8, 32, 64) if num_replicas == 1 else (1,)
    return [replace(chosen, steps_per_execution=count) for count in counts]


def _fastest(chosen: Computation, best: float, others: list[Computation], speed) -> tuple[Computation, float]:
    """The fastest of the others where it beats the one chosen by more than noise."""
    speeds = {other: speed(other) for other in others if other != chosen}
    winner = max(speeds, key=speeds.__getitem__, default=chosen)
    return (winner, speeds[winner]) if speeds.get(winner, 0.0) > best * (1 + MARGIN) else (chosen, best)


def _note(rows: list[dict], timed: str, computation: Computation, examples_per_second: float) -> float:
    row = {**computation.to_json(), "timed": timed, "examples_per_second": round(examples_per_second, 1)}
    _logger.info("timed %s: %s", timed, ", ".join(f"{name} {value}" for name, value in row.items() if name != "timed"))
    rows.append(row)
    return examples_per_second
