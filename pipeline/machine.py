"""The host's processor and accelerators, and the cores and memory granted to this process, from files of Linux."""

import math
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

# Ids of the vendor Google and of its TPUs on the PCI bus, as JAX (jax/_src/hardware_utils.py) and PyTorch/XLA
# (torch_xla/_internal/tpu.py) have them. Device files are no proof: NPUs of others are /dev/accel* too, and any device
# lent to a virtual machine is /dev/vfio/N.
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
# "Processing accelerators" in the PCI code and id assignment specification: a TPU younger than this list. Google's
# network card and disk have classes of their own.
_PROCESSING_ACCELERATOR = "0x12"
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_ROOT = Path("/")
# They decide the speed of a model on a CPU: width of vectors, and native bfloat16 and int8 products.
_TELLING_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimd", "sve", "bf16")


def cpu_model() -> str:
    """The name of the processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def cpu_flags() -> set[str]:
    """Instruction sets, in Linux's spelling."""
    return set((_cpuinfo("flags") or _cpuinfo("Features")).split())


def granted_cores() -> int:
    """Cores of this process's affinity, limited by the quota of its cgroup."""
    cores = len(os.sched_getaffinity(0))
    limits = (_read(folder / "cpu.max").strip() for folder in _cgroup_folders(""))
    quota, _, period = next(filter(None, limits), "").partition(" ")
    return min(cores, max(1, math.ceil(int(quota) / int(period)))) if quota.isdigit() and period.isdigit() else cores


def granted_memory_bytes() -> int:
    """Memory of the machine, limited by the cgroup."""
    return min([psutil.virtual_memory().total, *(limit for limit, _ in _memory_limits())])


def free_memory_bytes() -> int:
    """Memory that is available without swapping, limited by the cgroup. Inactive pages of files count as available."""
    return min([psutil.virtual_memory().available, *(max(0, limit - used) for limit, used in _memory_limits())])


def nvidia_cards() -> list[str]:
    """The models of the NVIDIA cards that the driver lists."""
    return [_value(_read(card), "Model") for card in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))]


def has_gpu_driver() -> bool:
    """Whether a driver of a GPU is loaded: NVIDIA's, AMD's, or that of Windows. True on other systems than Linux."""
    devices = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    return not sys.platform.startswith("linux") or any(Path(device).exists() for device in devices)


def nvidia_driver() -> str:
    """The name and version of the NVIDIA driver."""
    return _read(Path("/proc/driver/nvidia/version")).partition("\n")[0] or "unknown"


def tpu_chips() -> list[str]:
    """The generations of the TPU chips on the PCI bus."""
    found = []
    for device in sorted(_PCI_DEVICES.glob("*")):
        vendor, number, kind = (_read(device / name).strip() for name in ("vendor", "device", "class"))
        if vendor == _GOOGLE and (number in _TPUS or kind.startswith(_PROCESSING_ACCELERATOR)):
            found.append(_TPUS.get(number, f"TPU {number}"))
    return found


def describe() -> dict[str, object]:
    """The host as plain data."""
    flags = cpu_flags()
    return {
        "cpu_model": cpu_model(),
        "cores": os.cpu_count(),
        "granted_cores": granted_cores(),
        "instruction_sets": [flag for flag in _TELLING_FLAGS if flag in flags],
        "accelerators": [*nvidia_cards(), *tpu_chips()],
        "memory_bytes": psutil.virtual_memory().total,
        "granted_memory_bytes": granted_memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
    }


def _cpuinfo(field: str) -> str:
    return _value(_read(Path("/proc/cpuinfo")), field)


def _value(text: str, field: str, separator: str = ":") -> str:
    """First value of a field in lines of "field: value", or an empty string."""
    return next((line.partition(separator)[2].strip() for line in text.splitlines() if line.startswith(field)), "")


def _memory_limits() -> Iterator[tuple[int, int]]:
    """Limit and use without inactive file pages, of this process's cgroup and of each above it."""
    kinds = (
        # Controller and mount, then the names of files and of the field, of versions 2 and 1.
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
    """The cgroup of this process under a controller ("" for version 2), and those above it, up to the mount."""
    root = _ROOT / "sys/fs/cgroup" / controller
    for line in _read(_ROOT / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            # In a container the path is often the host's, and only the mount itself is visible.
            own = root / path.lstrip("/")
            yield from (folder for folder in (own, *own.parents) if folder.is_relative_to(root))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
