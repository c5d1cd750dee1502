"""Comparison: which rows of the scoreboard may be held against each other, and what a speed-up is.

A speed-up is the ratio of two rows' images per second. It is given only between rows that agree in all of COMPARED
and differ in hardware, and of which both were measured on verified, requested hardware and on real data. The baseline
is the slowest of the rows that may be compared: every ratio is at least 1, and none depends on the order of the runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.formats import plain
from pipeline.report.reading import is_fallback
from pipeline.runs.record import SKIPPED

#: What two rows must share, in the words of the cell that says they do not.
COMPARED = {
    "content_digests": "dataset content",
    "model": "model",
    "recipe": "recipe",
    "epochs": "epochs",
    "global_batch_size": "global batch",
    "precision": "precision",
}
HARDWARE = ("effective_device", "device_name", "num_replicas", "hostname")


def with_speedups(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The scenarios, each with its `speedup`.

    That is `ratio` and `baseline` (the first fingerprint of the row compared with), both None where there is no ratio
    to give; and `words`: the baseline in a few words, or what forbids the comparison.
    """
    eligible = [scenario for scenario in scenarios if _unfit(scenario) is None]
    return [{**scenario, "speedup": _speedup(scenario, eligible)} for scenario in scenarios]


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What of COMPARED two rows do not share; what is unknown of either is not shared."""
    return [
        words
        for name, words in COMPARED.items()
        if one[name] is None or other[name] is None or one[name] != other[name]
    ]


def _speedup(scenario: Mapping[str, Any], eligible: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    if reason := _unfit(scenario):
        return _no_ratio(reason)
    others = [other for other in eligible if _hardware(other) != _hardware(scenario)]
    if not others:
        return _no_ratio("no other hardware to compare with")
    nearest = min(others, key=lambda other: len(differing(scenario, other)))
    if apart := differing(scenario, nearest):
        return _no_ratio(f"differs from {_name(nearest)} in {', '.join(apart)}")
    baseline = min((other for other in eligible if not differing(scenario, other)), key=_slowest_first)
    if scenario is baseline:
        return _no_ratio("baseline")
    if _hardware(scenario) == _hardware(baseline):
        return _no_ratio("same hardware as the baseline")
    ratio = _rate(scenario) / _rate(baseline)
    return {"ratio": ratio, "baseline": baseline["fingerprints"][0], "words": f"of {_name(baseline)}"}


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


def _slowest_first(scenario: Mapping[str, Any]) -> tuple[float, str]:
    return _rate(scenario), scenario["fingerprints"][0]


def _rate(scenario: Mapping[str, Any]) -> float | None:
    return scenario["examples_per_second"]["mean"]


def _hardware(scenario: Mapping[str, Any]) -> list[Any]:
    return [scenario[name] for name in HARDWARE]


def _name(scenario: Mapping[str, Any]) -> str:
    return f"{plain(scenario['effective_device'])} on {plain(scenario['hostname'] or 'an unknown host')}"


def _no_ratio(words: str) -> dict[str, Any]:
    return {"ratio": None, "baseline": None, "words": words}
