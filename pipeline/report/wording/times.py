"""Times: where the time of a run went, and whether its steps waited for input."""

from collections.abc import Mapping
from typing import Any

from pipeline.report.facts.utilisation import utilisation
from pipeline.report.wording.formats import NO_FIGURE, number, percent, plain

# Field of the record's time_breakdown → (what it is, units of it in a second, their name).
_TIMES = {
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


def time_verdict(run: Mapping[str, Any]) -> str:
    """Whether a run's steps waited for the device or for the input; empty where that was not measured."""
    share = (run["time_breakdown"] or {}).get("input_wait_share")
    if share is None:
        return ""
    return (
        f"input-bound: {percent(share, 0)} of each step was spent waiting for input" if share > 0.1 else "compute-bound"
    )


def time_rows(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the time went: (what, seconds or share of a step); empty where that was not measured."""
    parts = run["time_breakdown"]
    if parts is None:
        return []
    known = {name: what for name, what in _PARTS.items() if parts[name] is not None}
    seconds = [(what, _duration(parts[name], scale, unit)) for name, (what, scale, unit) in {**_TIMES, **known}.items()]
    left_out = [("Not timed alone", plain(parts["not_measured"]))] if parts["not_measured"] else []
    return [*_step_rows(parts), *seconds, *_operations(run), *left_out]


def _step_rows(parts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A step, and what of it was computing and waiting: these add up.

    The step that was timed alone is not shown beside it. The machine may have been slower by then, and a step with its
    input ready would seem to take longer than one without.
    """
    step, share = parts["step_seconds"], parts["input_wait_share"]
    known = step is not None and share is not None
    return [
        ("A step of training", _duration(step, 1000, "ms")),
        ("of it computing", _duration(step * (1 - share) if known else None, 1000, "ms")),
        ("of it waiting for its input", _duration(step * share if known else None, 1000, "ms")),
        ("Share of a step spent waiting", percent(share, 0)),
    ]


def _operations(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a step computes, and the share of the device's speed that this is."""
    shares = utilisation(run)
    if not shares:
        return []
    flops, moved = run["time_breakdown"]["step_flops"], run["time_breakdown"].get("step_bytes")
    of = {"probe": "of the probe's speed", "published": "of the published peak"}
    said = ", ".join(f"{percent(share, 0)} {of[name]}" for name, share in shares.items())
    memory = [("Memory read and written by a step", f"{number(moved / 1e6, 0)} MB")] if moved else []
    return [("Operations of a step", f"{number(flops / 1e9, 2)} GFLOP"), *memory, ("Model FLOP utilisation", said)]


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


def _duration(seconds: float | None, scale: int, unit: str) -> str:
    return NO_FIGURE if seconds is None else f"{number(scale * seconds, 2)} {unit}"
