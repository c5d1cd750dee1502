"""Processor and accelerators of the host, and cores and memory granted to this process, from files of Linux."""

import math
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# PCI ids of Google and its TPUs, from JAX (jax/_src/hardware_utils.py) and PyTorch/XLA (torch_xla/_internal/tpu.py).
# Device files prove nothing, because other NPUs use /dev/accel* and any device of a virtual machine is /dev/vfio/N.
_GOOGLE = "0x1ae0"
_TPUS = {
    "0x0027": "TPU v2 or v3",
    "0x0056": "TPU",
    "0x005e": "TPU v4",
    "0x0062": "TPU v5p",
    "0x0063": "TPU v5e",
    "0x006f": "TPU v6e",
    "0x0076": "TPU v7",
}
# PCI class of processing accelerators, for TPUs newer than this list. Google's other devices have other classes.
_PROCESSING_ACCELERATOR = "0x12"
_CPU, _PCI_DEVICES = Path("/proc/cpuinfo"), Path("/sys/bus/pci/devices")
_ROOT = Path("/")
# Instruction sets that determine the speed of a model, by vector width and native bfloat16 and int8 products.
_REPORTED_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve", "bf16")

# Instruction sets with which TensorFlow 2.21 enables oneDNN by itself.
_ONEDNN_CPU_FLAGS = {"avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16"}


def cpu_model() -> str:
    """Name of the processor."""
    return _value(_read(_CPU), "model name") or platform.processor() or platform.machine()


def cpu_flags() -> set[str]:
    """Instruction sets of the processor, in Linux's spelling."""
    return set((_value(_read(_CPU), "flags") or _value(_read(_CPU), "Features")).split())


def onednn_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable that enables oneDNN in TensorFlow, on x86 processors for which TensorFlow leaves it off.

    With AVX2 alone, models train 1.1 to 1.5 times as fast (docs/LOG.md). The environment takes precedence.
    """
    flags, name = cpu_flags(), "TF_ENABLE_ONEDNN_OPTS"
    return {name: "1"} if "avx2" in flags and not flags & _ONEDNN_CPU_FLAGS and name not in environment else {}


def granted_cores() -> int:
    """Number of cores in the affinity of this process, limited by the quota of its cgroup."""
    cores = len(os.sched_getaffinity(0))
    limits = (_read(folder / "cpu.max").strip() for folder in _cgroup_folders(""))
    quota, _, period = next(filter(None, limits), "").partition(" ")
    return min(cores, max(1, math.ceil(int(quota) / int(period)))) if quota.isdigit() and period.isdigit() else cores


def granted_memory_bytes() -> int:
    """Memory of the machine in bytes, limited by the cgroup."""
    return min([_memory().total, *(limit for limit, _ in _memory_limits())])


def free_memory_bytes() -> int:
    """Memory in bytes that is available without swapping, limited by the cgroup. Inactive file pages count."""
    return min([_memory().available, *(max(0, limit - used) for limit, used in _memory_limits())])


def nvidia_cards() -> list[str]:
    """Models of the NVIDIA GPUs that the driver lists."""
    return [_value(_read(card), "Model") for card in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]


def has_gpu_driver() -> bool:
    """Whether a GPU driver of NVIDIA, AMD or Windows is loaded."""
    return any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg"))


def has_nvidia_driver() -> bool:
    """Whether NVIDIA's driver is loaded, without which JAX with CUDA uses no GPU."""
    return Path("/dev/nvidiactl").exists()


def nvidia_driver() -> str:
    """Name and version of the NVIDIA driver."""
    return _read(Path("/proc/driver/nvidia/version")).partition("\n")[0] or "unknown"


def tpu_chips() -> list[str]:
    """Generations of the TPU chips on the PCI bus."""
    chips = []
    for device in sorted(_PCI_DEVICES.glob("*")):
        vendor, number, kind = (_read(device / name).strip() for name in ("vendor", "device", "class"))
        if vendor == _GOOGLE and (number in _TPUS or kind.startswith(_PROCESSING_ACCELERATOR)):
            chips.append(_TPUS.get(number, f"TPU {number}"))
    return chips


def describe() -> dict[str, object]:
    """Describe the host as JSON data."""
    flags = cpu_flags()
    return {
        "cpu_model": cpu_model(),
        "cores": os.cpu_count(),
        "granted_cores": granted_cores(),
        "instruction_sets": [flag for flag in _REPORTED_FLAGS if flag in flags],
        "accelerators": [*nvidia_cards(), *tpu_chips()],
        "memory_bytes": _memory().total,
        "granted_memory_bytes": granted_memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _memory() -> Any:
    # It takes 10 ms to import, and most commands do not use it.
    import psutil

    return psutil.virtual_memory()


def _value(text: str, field: str, separator: str = ":") -> str:
    """Value of the first matching field in lines of "field: value". Empty if there is none."""
    return next((line.partition(separator)[2].strip() for line in text.splitlines() if line.startswith(field)), "")


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Limit, and usage without inactive file pages, of the cgroup of this process and its ancestors."""
    kinds = (
        # Controller, names of the files and name of the field, for versions 2 and 1.
        ("", "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    )
    for controller, limit_name, usage_name, inactive_name in kinds:
        for folder in _cgroup_folders(controller):
            limit, usage = (_read(folder / name).strip() for name in (limit_name, usage_name))
            if limit.isdigit() and usage.isdigit():
                inactive = _value(_read(folder / "memory.stat"), f"{inactive_name} ", " ") or "0"
                yield int(limit), max(0, int(usage) - int(inactive))


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """Folders of this process's cgroup and its ancestors under a controller, which is "" for version 2."""
    root = _ROOT / "sys/fs/cgroup" / controller
    for line in _read(_ROOT / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            # In a container, the path is often that of the host, and only the mount is visible.
            cgroup = root / path.lstrip("/")
            yield from (folder for folder in (cgroup, *cgroup.parents) if folder.is_relative_to(root))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
