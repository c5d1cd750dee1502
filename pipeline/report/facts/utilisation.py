"""Utilisation: the share of a device's speed that the multiplications of a network's step take.

Model FLOP utilisation as Chowdhery et al. 2022 (PaLM) define it: operations of the model's step, over its seconds and
what the device can do. What it can do is measured, by the receipt's probe, and for some devices published as well.
"""

import re
from collections.abc import Mapping
from typing import Any

# Dense FLOP/s of a chip or card by precision, as their makers publish them: NVIDIA's data sheets (float32:
# without the matrix units), Google Cloud's pages of TPU versions. A name is that of the whole device:
# an "L40S" is no "L4", and cards of one generation for PCIe are slower than the modules (SXM, HBM3).
_PUBLISHED = {
    r"NVIDIA H200": {"bfloat16": 989e12, "tf32": 494e12, "float32": 67e12},
    r"NVIDIA H100 (80GB HBM3|SXM.*)": {"bfloat16": 989e12, "tf32": 494e12, "float32": 67e12},
    r"(NVIDIA )?A100[- ].*": {"bfloat16": 312e12, "tf32": 156e12, "float32": 19.5e12},
    r"NVIDIA L4": {"bfloat16": 121e12, "tf32": 60e12, "float32": 30.3e12},
    r"(Tesla|NVIDIA) T4": {"float32": 8.1e12},
    r"TPU v6 lite": {"bfloat16": 918e12},
    r"TPU v5 lite": {"bfloat16": 197e12},
    r"TPU v5p?": {"bfloat16": 459e12},
    r"TPU v4": {"bfloat16": 275e12},
}


def utilisation(run: Mapping[str, Any]) -> dict[str, float]:
    """Share of the speed that the ``probe`` reached, and of the ``published`` one; empty where it was not measured."""
    parts, probe = run["time_breakdown"] or {}, (run["receipt"] or {}).get("probe")
    flops, seconds = parts.get("step_flops"), parts.get("step_seconds")
    if not flops or not seconds or not isinstance(probe, Mapping):
        return {}
    reached = [speed for name, speed in probe.items() if _is_own_speed(name, speed)]
    # The replicas of a host share its CPU.
    devices = _hosts(run) if run["effective_device"] == "cpu" else max(1, run["num_replicas"])
    found = {"probe": max(reached, default=0), "published": _published(run)}
    return {name: flops / seconds / (peak * devices) for name, peak in found.items() if peak}


def _hosts(run: Mapping[str, Any]) -> int:
    processes = run["receipt"].get("processes")
    seen = [one for one in processes if isinstance(one, Mapping)] if isinstance(processes, list) else []
    return len({str(one.get("hostname")) for one in seen}) or 1


def _is_own_speed(name: str, speed: object) -> bool:
    return name.endswith("_flops_per_second") and not name.startswith("host_") and isinstance(speed, int | float)


def _published(run: Mapping[str, Any]) -> float:
    # Each of several devices has its name there.
    devices = set(str(run["device_name"] or "").split(", ")) if run["effective_device"] != "cpu" else ()
    found = [peaks for name, peaks in _PUBLISHED.items() for device in devices if re.fullmatch(name, device)]
    return found[0].get(run["precision"], 0) if len(devices) == len(found) == 1 else 0
