"""Comparison: which rows of the scoreboard may be compared, and what a speed-up is.

A speed-up is the ratio of two rows' images per second. It is given only between rows that agree in all that the
record's schema marks as compared and in code and library versions, that are known to differ in hardware, and of which
both were measured on verified, requested hardware and on real data. What belongs to a device alone (CUDA, libtpu) is in
its receipt, not among those versions. The baseline is the newest such row on a CPU, or, where there is none, the
slowest: the ratio does not grow with the number of old rows, nor depend on the order of the runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from pipeline.report.facts.reading import is_fallback
from pipeline.runs.record import SKIPPED, names


class Obstacle(StrEnum):
    """Why a row has no speed-up."""

    SKIPPED = "skipped"
    STAND_IN = "stand-in data"
    FALLBACK = "not the requested device"
    NOT_VERIFIED = "device not verified"
    NO_THROUGHPUT = "no throughput"
    NO_OTHER_HARDWARE = "no other hardware"
    DIFFERENT = "settings, data, code or versions differ"
    BASELINE = "is the baseline"
    SAME_HARDWARE = "same hardware as the baseline"


@dataclass(frozen=True, kw_only=True)
class SpeedUp:
    """A row's throughput over that of the row compared with, or why there is none.

    `other` is the row compared with; where the rows `differ` in what they must share, the one that is nearest.
    """

    ratio: float | None = None
    other: Mapping[str, Any] | None = None
    obstacle: Obstacle | None = None
    differ: tuple[str, ...] = ()


def with_speedups(scenarios: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The scenarios, each with its `speedup`: a SpeedUp."""
    eligible = [scenario for scenario in scenarios if _unfit(scenario) is None]
    return [{**scenario, "speedup": _speedup(scenario, eligible)} for scenario in scenarios]


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The fields that two rows must share to be compared and do not; what is unknown of either is not shared."""
    return [
        name
        for name in (*names(compared=True), "code")
        if one[name] is None or other[name] is None or one[name] != other[name]
    ]


def on_other_hardware(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two rows are known to differ in hardware; what is unknown of either is no difference."""
    return any(
        one[name] is not None and other[name] is not None and one[name] != other[name] for name in names("hardware")
    )


def _speedup(scenario: Mapping[str, Any], eligible: Sequence[Mapping[str, Any]]) -> SpeedUp:
    if obstacle := _unfit(scenario):
        return SpeedUp(obstacle=obstacle)
    others = [other for other in eligible if on_other_hardware(scenario, other)]
    if not others:
        return SpeedUp(obstacle=Obstacle.NO_OTHER_HARDWARE)
    nearest = min(others, key=lambda other: len(differing(scenario, other)))
    if differ := differing(scenario, nearest):
        return SpeedUp(obstacle=Obstacle.DIFFERENT, other=nearest, differ=tuple(differ))
    baseline = _baseline([other for other in eligible if not differing(scenario, other)])
    if scenario is baseline:
        return SpeedUp(obstacle=Obstacle.BASELINE)
    if not on_other_hardware(scenario, baseline):
        return SpeedUp(obstacle=Obstacle.SAME_HARDWARE)
    return SpeedUp(ratio=_rate(scenario) / _rate(baseline), other=baseline)


def _baseline(comparable: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    on_cpu = [row for row in comparable if row["effective_device"] == "cpu"]
    if on_cpu:
        return max(on_cpu, key=lambda row: (datetime.fromisoformat(row["finished_at"]), row["fingerprints"][0]))
    return min(comparable, key=lambda row: (_rate(row), row["fingerprints"][0]))


def _unfit(scenario: Mapping[str, Any]) -> Obstacle | None:
    """Why the row's figures are no ground for a comparison; None where they are."""
    if scenario["status"] == SKIPPED:
        return Obstacle.SKIPPED
    if scenario["dataset"] == "synthetic":
        return Obstacle.STAND_IN
    if is_fallback(scenario):
        return Obstacle.FALLBACK
    if not scenario["device_verified"]:
        return Obstacle.NOT_VERIFIED
    rate = _rate(scenario)
    return None if rate is not None and rate > 0 else Obstacle.NO_THROUGHPUT


def _rate(scenario: Mapping[str, Any]) -> float | None:
    return scenario["examples_per_second"]["mean"]
