"""Utilisation: the share of a device's speed that the multiplications of a network's step take.

Model FLOP utilisation as Chowdhery et al. 2022 (PaLM) define it: operations of the model's step, over its seconds and
what the device can do. What it can do is measured, by the receipt's probe, and for some devices published as well.
"""

from collections.abc import Mapping
from typing import Any

# Dense FLOP/s of a chip or card by precision, as their makers publish them: NVIDIA's data sheets (float32: the
# matrix units in TF32, where there are any), Google Cloud's pages of TPU versions. The first name that fits counts.
_PUBLISHED = (
    ("H200", {"bfloat16": 989e12, "float32": 494e12}),
    ("H100", {"bfloat16": 989e12, "float32": 494e12}),
    ("A100", {"bfloat16": 312e12, "float32": 156e12}),
    ("L4", {"bfloat16": 121e12, "float32": 60e12}),
    ("T4", {"float32": 8.1e12}),
    ("TPU v6 lite", {"bfloat16": 918e12}),
    ("TPU v5 lite", {"bfloat16": 197e12}),
    ("TPU v5p", {"bfloat16": 459e12}),
    ("TPU v5", {"bfloat16": 459e12}),
    ("TPU v4", {"bfloat16": 275e12}),
)


def utilisation(run: Mapping[str, Any]) -> dict[str, float]:
    """Share of the speed that the ``probe`` reached, and of the ``published`` one; empty where it was not measured."""
    parts, probe = run["time_breakdown"] or {}, (run["receipt"] or {}).get("probe")
    flops, seconds = parts.get("step_flops"), parts.get("step_seconds")
    if not flops or not seconds or not isinstance(probe, Mapping):
        return {}
    reached = [speed for name, speed in probe.items() if _is_own_speed(name, speed)]
    # The replicas of a CPU share it.
    devices = 1 if run["effective_device"] == "cpu" else max(1, run["num_replicas"])
    found = {"probe": max(reached, default=0), "published": _published(run)}
    return {name: flops / seconds / (peak * devices) for name, peak in found.items() if peak}


def _is_own_speed(name: str, speed: object) -> bool:
    return name.endswith("_flops_per_second") and not name.startswith("host_") and isinstance(speed, int | float)


def _published(run: Mapping[str, Any]) -> float:
    device = str(run["device_name"] or "") if run["effective_device"] != "cpu" else ""
    peaks = next((peaks for name, peaks in _PUBLISHED if name in device), {})
    return peaks.get(run["precision"], 0)
