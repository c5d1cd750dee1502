"""Mismatch: why a requested device could not be had, in one sentence, and what to do, in another.

Exceptions are told by their words: the libraries raise the same classes for many causes. An unknown one is quoted
whole. Seen in TensorFlow 2.21's sources and on machines without accelerators, or named in its bug reports.
"""

import re
from dataclasses import asdict, dataclass

_CPU_INSTEAD = "or choose another device with [Train] device"


@dataclass(frozen=True)
class Mismatch:
    """A requested device that is not there; ``error`` is the exception's own text."""

    device: str
    cause: str
    remedy: str
    error: str

    def __str__(self) -> str:
        return f"[Train] device: {self.device} was requested. {self.cause} {self.remedy}"

    def to_json(self) -> dict[str, str]:
        """Plain data for a run's record."""
        return asdict(self)


# (device, words of the exception, cause, remedy); the first that fits counts.
_KNOWN = (
    (
        "tpu",
        r"ConfigureDistributedTPU|No OpKernel was registered",
        "This build of TensorFlow has no TPU support.",
        f"On a TPU host install TensorFlow's TPU build (tensorflow-tpu) with libtpu, {_CPU_INSTEAD}.",
    ),
    (
        "tpu",
        r"ml_dtypes|jaxlib?\b|_ARRAY_API|numpy\.core\.multiarray failed",
        "Packages that TensorFlow and the TPU runtime share do not fit together (ml_dtypes, JAX, NumPy).",
        "Install the locked versions into a fresh environment (make clean setup), without packages of your own in it.",
    ),
    (
        "tpu",
        r"already in use|libtpu lockfile|Device or resource busy|/dev/(accel|vfio).*(busy|in use)",
        "Another process holds the TPU: libtpu lets one process use it at a time.",
        "Wait for that process or end it, then run again.",
    ),
    (
        "tpu",
        r"libtpu",
        "The TPU's library libtpu could not be loaded.",
        f"Install libtpu on the TPU host, {_CPU_INSTEAD}.",
    ),
    (
        "tpu",
        r"scheme '?\[?local\]?'? not implemented|File system scheme '\[local\]'",
        "A remote TPU node cannot read this machine's files.",
        f"Run on the TPU's own host, {_CPU_INSTEAD}.",
    ),
    (
        "tpu",
        r"provide a TPU Name",
        "No TPU is named, and this machine does not announce one.",
        f"Set [Train] tpu_address (or TPU_NAME) to a name, grpc://host:port or local, {_CPU_INSTEAD}.",
    ),
    (
        "tpu",
        r"Google API client",
        "TensorFlow can look up a TPU by name only with Google's API client, which is not installed.",
        "Give [Train] tpu_address as grpc://host:port or local, or install cloud-tpu-client.",
    ),
    (
        "tpu",
        r"is not yet ready|to become healthy",
        "The TPU is there and not ready yet.",
        "Wait until its state is READY, then run again.",
    ),
    (
        "tpu",
        r"No TPUs with the specified names|urlopen error|Name or service not known|metadata|Could not find (the )?TPU|"
        r"TPU \S+ not found|HttpError 404",
        "The name of the TPU could not be resolved to an address.",
        "Check [Train] tpu_address, tpu_zone and tpu_project, or give the address itself as grpc://host:port.",
    ),
    (
        "tpu",
        r"unreachable|failed to connect|Connection refused|timed out|Deadline|UNAVAILABLE|Socket closed",
        "The TPU's address does not answer.",
        "Check that the TPU node is running and that this machine may reach host and port of [Train] tpu_address.",
    ),
    (
        "tpu",
        r"TPUs not found|topology holds no TPU|no TPU devices",
        "The resolver answered, but there is no TPU behind it.",
        f"Run on a TPU host, {_CPU_INSTEAD}.",
    ),
    (
        "gpu",
        r"built without CUDA",
        "This build of TensorFlow has no GPU support.",
        f"Install the GPU build with make setup EXTRA=gpu, {_CPU_INSTEAD}.",
    ),
    (
        "gpu",
        r"no driver",
        "This machine shows no NVIDIA driver, and so no GPU.",
        f"Run on a machine whose nvidia-smi lists a GPU, {_CPU_INSTEAD}.",
    ),
    (
        "gpu",
        r"sees none",
        "The driver is there, but TensorFlow could not load its CUDA libraries or use the card.",
        f"Install the GPU build with make setup EXTRA=gpu and check CUDA_VISIBLE_DEVICES, {_CPU_INSTEAD}.",
    ),
)


def is_known(device: str, error: BaseException) -> bool:
    """Whether an exception is one of those that say a device is unavailable."""
    return _known(device, _text(error)) is not None


def explain(device: str, error: BaseException) -> Mismatch:
    """What an exception on the way to a device means."""
    text = _text(error)
    if known := _known(device, text):
        return Mismatch(device, *known, text)
    cause = f"It could not be initialised, for a reason not known here: {text}"
    return Mismatch(device, cause, f"See the message, {_CPU_INSTEAD}.", text)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _known(device: str, text: str) -> tuple[str, str] | None:
    """Cause and remedy of an exception of this text, if there is one known."""
    for known_device, words, cause, remedy in _KNOWN:
        if known_device == device and re.search(words, text, re.IGNORECASE):
            return cause, remedy
    return None
