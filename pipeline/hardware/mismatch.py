"""Causes and remedies of unavailable devices.

Libraries raise the same class for many causes, so the text of an exception identifies its cause. The texts are from
the sources and bug reports of JAX 0.10, and from machines without accelerators.
"""

import re

from pipeline.errors import HardwareMismatchError, message
from pipeline.optional_packages import install_command

# Cause → pattern of the exception's text. A cause begins with its device, and the first match counts.
_PATTERNS = {
    "tpu_build": r"TensorFlow has no TPU support",
    "tpu_packages": r"ml_dtypes|jaxlib?\b|_ARRAY_API|numpy\.core\.multiarray failed",
    "tpu_permission": r"/dev/(accel|vfio)\S*.*(Permission denied|not permitted|EACCES|EPERM)",
    "tpu_metadata": r"(instance|TPU) metadata|metadata server|metadata\.google\.internal",
    "tpu_in_use": r"already in use|libtpu lockfile|Device or resource busy|/dev/(accel|vfio).*(busy|in use)",
    "tpu_library": r"libtpu",
    "tpu_absent": r"no TPU devices|instances of tpu are present",
    "gpu_build": r"built without CUDA",
    "gpu_driver": r"no driver",
    "gpu_libraries": r"sees none",
    "gpu_jax": r"instances of gpu are present|Unable to initialize backend 'cuda'|Unknown backend cuda",
}


def explain(device: str, error: BaseException) -> HardwareMismatchError:
    """Convert an exception during the placement on a device to an error with cause and remedy."""
    text = f"{type(error).__name__}: {error}"
    matching = (name for name, pattern in _PATTERNS.items() if re.search(pattern, text, re.IGNORECASE))
    cause, remedy = _cause_and_remedy(next((name for name in matching if name.startswith(device)), ""), text)
    mismatch = {"device": device, "cause": cause, "remedy": remedy, "error": text}
    return HardwareMismatchError(f"[Train] device: {device} was requested. {cause} {remedy}", mismatch)


@message
def _cause_and_remedy(name: str, text: str) -> tuple[str, str]:
    another_device = "or choose another device with [Train] device"
    causes = {
        "": f"It could not be initialized for an unknown reason: {text}",
        "tpu_build": "TensorFlow has no TPU support.",
        "tpu_packages": "The installed libraries need different versions of ml_dtypes, JAX or NumPy.",
        "tpu_permission": "This user cannot open the TPU's device files (/dev/vfio or /dev/accel).",
        "tpu_metadata": "The metadata server, which assigns a rank to each TPU host, does not respond.",
        "tpu_in_use": "Another process uses the TPU. libtpu allows one process at a time.",
        "tpu_library": "The library libtpu could not be loaded.",
        "tpu_absent": "This machine lists no TPU.",
        "gpu_build": "This build of TensorFlow has no GPU support.",
        "gpu_driver": "This machine has no NVIDIA driver.",
        "gpu_jax": "The driver is installed, but JAX sees no GPU. Its CUDA plugin is missing or could not be loaded.",
        "gpu_libraries": "The driver is installed, but TensorFlow could not load its CUDA libraries or use the GPU.",
    }
    remedies = {
        "": f"Read the message, {another_device}.",
        "tpu_build": f"Set [Train] backend = jax, which needs {install_command('jax-tpu')}, {another_device}.",
        "tpu_packages": f"Install the versions of this release into a fresh environment with {install_command()}.",
        "tpu_permission": "Add the user to the group that owns them. In a container, pass the devices through.",
        "tpu_metadata": "Run on the TPU VM itself, with its metadata server, or set TPU_SKIP_MDS_QUERY=1 and the "
        f"variables of the topology, {another_device}.",
        "tpu_in_use": "Wait for that process or end it, then run again.",
        "tpu_library": f"Install libtpu on the TPU host, {another_device}.",
        "tpu_absent": f"Run on a TPU host, {another_device}.",
        "gpu_build": f"Install the GPU build with {install_command('gpu')}, {another_device}.",
        "gpu_driver": f"Run on a machine whose nvidia-smi lists a GPU, {another_device}.",
        "gpu_jax": f"Install it with {install_command('jax-gpu')} and check CUDA_VISIBLE_DEVICES, {another_device}.",
        "gpu_libraries": f"Run {install_command('gpu')} and check CUDA_VISIBLE_DEVICES, {another_device}.",
    }
    return causes[name], remedies[name]
