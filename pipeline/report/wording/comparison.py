"""Comparison: a row's speed-up, or why it has none, in words."""

from collections.abc import Mapping
from typing import Any

from pipeline.report.facts.comparison import Obstacle, SpeedUp
from pipeline.report.wording.formats import hosts, plain

# Fields whose names are not their words.
_WORDS = {
    "computation_flags": "environment variables of computation",
    "content_digests": "dataset content",
    "global_batch_size": "global batch",
    "replicas": "requested replicas",
    "requested_jit_compile": "requested XLA",
    "code": "code or library versions",
}

_OBSTACLES = {
    Obstacle.SKIPPED: "skipped",
    Obstacle.STAND_IN: "stand-in data",
    Obstacle.FALLBACK: "fallback: not the requested device",
    Obstacle.NOT_VERIFIED: "device not verified",
    Obstacle.NO_THROUGHPUT: "no throughput was measured",
    Obstacle.NO_OTHER_HARDWARE: "no other hardware to compare with",
    Obstacle.BASELINE: "baseline",
    Obstacle.SAME_HARDWARE: "same hardware as the baseline",
}


def speedup_part(speedup: SpeedUp) -> dict[str, Any]:
    """A speed-up as report.json has it.

    That is `ratio` and `baseline` (the first fingerprint of the row compared with), both None where there is no ratio
    to give; and `words`: the baseline in a few words, or what forbids the comparison.
    """
    if speedup.ratio is None:
        return {"ratio": None, "baseline": None, "words": _obstacle(speedup)}
    baseline = speedup.other
    return {"ratio": speedup.ratio, "baseline": baseline["fingerprints"][0], "words": f"of {_name(baseline)}"}


def words_for(name: str) -> str:
    """A field of the record in words."""
    return _WORDS.get(name, name.replace("_", " "))


def _obstacle(speedup: SpeedUp) -> str:
    if speedup.obstacle is Obstacle.DIFFERENT:
        return f"differs from {_name(speedup.other)} in {', '.join(map(words_for, speedup.differ))}"
    return _OBSTACLES[speedup.obstacle]


def _name(row: Mapping[str, Any]) -> str:
    which = plain(row["fingerprints"][0])[:8]
    return f"{plain(row['effective_device'])} on {hosts(row['hostnames'])} ({which})"
