"""Comparison: which rows of the scoreboard may be compared, and what a speed-up is.

A speed-up is the ratio of two rows' images per second. It is given only between rows that agree in all that the
record's schema marks as compared and in code and library versions, that are known to differ in hardware, and of which
both were measured on verified, requested hardware and on real data. What belongs to a device alone (CUDA, libtpu) is in
its receipt, not among those versions. The baseline is the newest such row on a CPU, or, where there is none, the
slowest: the ratio does not grow with the number of old rows, nor depend on the order of the runs.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pipeline.report.formats import hosts, plain
from pipeline.report.reading import is_fallback
from pipeline.runs.record import SKIPPED, names

# Fields whose names are not their words.
_WORDS = {
    "content_digests": "dataset content",
    "global_batch_size": "global batch",
    "replicas": "requested replicas",
    "requested_jit_compile": "requested XLA",
    "code": "code or library versions",
}


def with_speedups(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The scenarios, each with its `speedup`.

    That is `ratio` and `baseline` (the first fingerprint of the row compared with), both None where there is no ratio
    to give; and `words`: the baseline in a few words, or what forbids the comparison.
    """
    eligible = [scenario for scenario in scenarios if _unfit(scenario) is None]
    return [{**scenario, "speedup": _speedup(scenario, eligible)} for scenario in scenarios]


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What two rows must share to be compared and do not, in words; what is unknown of either is not shared."""
    return [
        words_for(name)
        for name in (*names(compared=True), "code")
        if one[name] is None or other[name] is None or one[name] != other[name]
    ]


def words_for(name: str) -> str:
    """A field of the record in words."""
    return _WORDS.get(name, name.replace("_", " "))


def on_other_hardware(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows are known to differ in hardware; what is unknown of either is no difference."""
    return any(
        one[name] is not None and other[name] is not None and one[name] != other[name] for name in names("hardware")
    )


def _speedup(scenario: Mapping[str, Any], eligible: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if reason := _unfit(scenario):
        return _no_ratio(reason)
    others = [other for other in eligible if on_other_hardware(scenario, other)]
    if not others:
        return _no_ratio("no other hardware to compare with")
    nearest = min(others, key=lambda other: len(differing(scenario, other)))
    if apart := differing(scenario, nearest):
        return _no_ratio(f"differs from {_name(nearest)} in {', '.join(apart)}")
    baseline = _baseline([other for other in eligible if not differing(scenario, other)])
    if scenario is baseline:
        return _no_ratio("baseline")
    if not on_other_hardware(scenario, baseline):
        return _no_ratio("same hardware as the baseline")
    ratio = _rate(scenario) / _rate(baseline)
    return {"ratio": ratio, "baseline": baseline["fingerprints"][0], "words": f"of {_name(baseline)}"}


def _baseline(comparable: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    on_cpu = [row for row in comparable if row["effective_device"] == "cpu"]
    if on_cpu:
        return max(on_cpu, key=lambda row: (datetime.fromisoformat(row["finished_at"]), row["fingerprints"][0]))
    return min(comparable, key=lambda row: (_rate(row), row["fingerprints"][0]))


def _unfit(scenario: Mapping[str, Any]) -> str | None:
    """Why the row's figures are no ground for a comparison; None where they are."""
    if scenario["status"] == SKIPPED:
        return "skipped"
    if scenario["dataset"] == "synthetic":
        return "stand-in data"
    if is_fallback(scenario):
        return "fallback: not the requested device"
    if not scenario["device_verified"]:
        return "device not verified"
    rate = _rate(scenario)
    return None if rate is not None and rate > 0 else "no throughput was measured"


def _rate(scenario: Mapping[str, Any]) -> float | None:
    return scenario["examples_per_second"]["mean"]


def _name(scenario: Mapping[str, Any]) -> str:
    which = plain(scenario["fingerprints"][0])[:8]
    return f"{plain(scenario['effective_device'])} on {hosts(scenario['hostnames'])} ({which})"


def _no_ratio(words: str) -> dict[str, Any]:
    return {"ratio": None, "baseline": None, "words": words}
