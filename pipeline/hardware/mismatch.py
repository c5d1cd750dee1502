"""Cause and remedy of an exception that says that a requested device is unavailable.

Exceptions are recognized by their texts, because the libraries raise the same classes for many causes. The texts are
from TensorFlow 2.21 and JAX 0.10, from their sources, their bug reports and machines without accelerators.
"""

import re
from dataclasses import asdict, dataclass

from pipeline.errors import message


@dataclass(frozen=True)
class Mismatch:
    """An unavailable device. ``error`` is the text of the exception."""

    device: str
    cause: str
    remedy: str
    error: str

    def __str__(self) -> str:
        return _sentence(self.device, self.cause, self.remedy)

    def to_json(self) -> dict[str, str]:
        """Plain data for a run's record."""
        return asdict(self)


# (device, text of the exception, cause). The first match counts.
_KNOWN = (
    ("tpu", r"ConfigureDistributedTPU|No OpKernel was registered", "tpu_build"),
    ("tpu", r"ml_dtypes|jaxlib?\b|_ARRAY_API|numpy\.core\.multiarray failed", "tpu_packages"),
    ("tpu", r"/dev/(accel|vfio)\S*.*(Permission denied|not permitted|EACCES|EPERM)", "tpu_permission"),
    ("tpu", r"(instance|TPU) metadata|metadata server|metadata\.google\.internal", "tpu_metadata"),
    (
        "tpu",
        r"already in use|libtpu lockfile|Device or resource busy|"
        r"/dev/(accel|vfio).*(busy|in use)",
        "tpu_in_use",
    ),
    ("tpu", r"libtpu", "libtpu"),
    ("tpu", r"scheme '?\[?local\]?'? not implemented|File system scheme '\[local\]'", "remote_files"),
    ("tpu", r"provide a TPU Name", "tpu_unnamed"),
    ("tpu", r"Google API client", "tpu_client"),
    ("tpu", r"is not yet ready|to become healthy", "tpu_not_ready"),
    (
        "tpu",
        r"No TPUs with the specified names|urlopen error|Name or service not known|"
        r"metadata|Could not find (the )?TPU|TPU \S+ not found|HttpError 404",
        "tpu_name",
    ),
    (
        "tpu",
        r"unreachable|failed to connect|Connection refused|timed out|Deadline|"
        r"UNAVAILABLE|Socket closed",
        "tpu_unreachable",
    ),
    ("tpu", r"TPUs not found|topology holds no TPU|no TPU devices|instances of tpu are present", "tpu_absent"),
    ("gpu", r"built without CUDA", "gpu_build"),
    ("gpu", r"no driver", "gpu_driver"),
    ("gpu", r"sees none", "gpu_libraries"),
    ("gpu", r"instances of gpu are present|Unable to initialize backend 'cuda'|Unknown backend cuda", "gpu_jax"),
)


def is_known(device: str, error: BaseException) -> bool:
    """Whether an exception is known to mean that a device is unavailable."""
    return _known(device, _text(error)) is not None


def explain(device: str, error: BaseException) -> Mismatch:
    """The cause and remedy of an exception during the placement on a device."""
    text = _text(error)
    known = _known(device, text)
    return Mismatch(device, _cause(known, text), _remedy(known), text)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _known(device: str, text: str) -> str | None:
    for known_device, pattern, cause in _KNOWN:
        if known_device == device and re.search(pattern, text, re.IGNORECASE):
            return cause
    return None


@message
def _sentence(device: str, cause: str, remedy: str) -> str:
    return f"[Train] device: {device} was requested. {cause} {remedy}"


@message
def _cause(known: str | None, text: str) -> str:
    causes = {
        "tpu_build": "This build of TensorFlow has no TPU support.",
        "tpu_packages": "Packages that TensorFlow and the TPU runtime share do not fit together (ml_dtypes, JAX, "
        "NumPy).",
        "tpu_permission": "This user may not open the TPU's device files (/dev/vfio or /dev/accel).",
        "tpu_metadata": "The metadata server, which tells a TPU's host of its place among the others, does not answer.",
        "tpu_in_use": "Another process holds the TPU: libtpu lets one process use it at a time.",
        "libtpu": "The TPU's library libtpu could not be loaded.",
        "remote_files": "A remote TPU node cannot read this machine's files.",
        "tpu_unnamed": "No TPU is named, and this machine does not announce one.",
        "tpu_client": "TensorFlow can look up a TPU by name only with Google's API client, which is not installed.",
        "tpu_not_ready": "The TPU is there and not ready yet.",
        "tpu_name": "The name of the TPU could not be resolved to an address.",
        "tpu_unreachable": "The TPU's address does not answer.",
        "tpu_absent": "The resolver answered, but there is no TPU behind it.",
        "gpu_build": "This build of TensorFlow has no GPU support.",
        "gpu_driver": "This machine shows no NVIDIA driver, and so no GPU.",
        "gpu_jax": "The driver is there, but JAX sees no GPU: its CUDA plugin is missing or could not be loaded.",
        "gpu_libraries": "The driver is there, but TensorFlow could not load its CUDA libraries or use the card.",
    }
    return causes[known] if known else f"It could not be initialised, for a reason not known here: {text}"


@message
def _remedy(known: str | None) -> str:
    another_device = "or choose another device with [Train] device"
    remedies = {
        "tpu_build": f"On a TPU host install TensorFlow's TPU build (tensorflow-tpu) with libtpu, {another_device}.",
        "tpu_packages": "Install the locked versions into a fresh environment (make clean setup), without packages of "
        "your own in it.",
        "tpu_permission": "Add the user to the group that owns them, or run as one that may; in a container, pass the "
        "devices on.",
        "tpu_metadata": "Run on the TPU VM itself with its metadata server reachable; TPU_SKIP_MDS_QUERY=1 with the "
        f"topology's own variables does without it, {another_device}.",
        "tpu_in_use": "Wait for that process or end it, then run again.",
        "libtpu": f"Install libtpu on the TPU host, {another_device}.",
        "remote_files": f"Run on the TPU's own host, {another_device}.",
        "tpu_unnamed": f"Set [Train] tpu_address (or TPU_NAME) to a name, grpc://host:port or local, {another_device}.",
        "tpu_client": "Give [Train] tpu_address as grpc://host:port or local, or install cloud-tpu-client.",
        "tpu_not_ready": "Wait until its state is READY, then run again.",
        "tpu_name": "Check [Train] tpu_address, tpu_zone and tpu_project, or give the address itself as "
        "grpc://host:port.",
        "tpu_unreachable": "Check that the TPU node is running and that this machine may reach host and port of "
        "[Train] tpu_address.",
        "tpu_absent": f"Run on a TPU host, {another_device}.",
        "gpu_build": f"Install the GPU build with make setup EXTRA=gpu, {another_device}.",
        "gpu_driver": f"Run on a machine whose nvidia-smi lists a GPU, {another_device}.",
        "gpu_jax": f"Install it with make setup EXTRA=jax-gpu and check CUDA_VISIBLE_DEVICES, {another_device}.",
        "gpu_libraries": "Install the GPU build with make setup EXTRA=gpu and check CUDA_VISIBLE_DEVICES, "
        f"{another_device}.",
    }
    return remedies[known] if known else f"See the message, {another_device}."
