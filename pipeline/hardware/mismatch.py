"""Mismatch: why a requested device is unavailable, in one sentence, and what to do, in another.

Exceptions are told by their words: the libraries raise the same classes for many causes. An unknown one is quoted
whole. Seen in the sources of TensorFlow 2.21 and JAX 0.10, on machines without accelerators, or in their bug reports.
"""

import re
from dataclasses import asdict, dataclass

from pipeline.hardware import words


@dataclass(frozen=True)
class Mismatch:
    """A requested device that is not there; ``error`` is the exception's own text."""

    device: str
    cause: str
    remedy: str
    error: str

    def __str__(self) -> str:
        return words.mismatch(self.device, self.cause, self.remedy)

    def to_json(self) -> dict[str, str]:
        """Plain data for a run's record."""
        return asdict(self)


# (device, words of the exception, cause); the first that fits counts.
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
    """Whether an exception is one of those that say a device is unavailable."""
    return _known(device, _text(error)) is not None


def explain(device: str, error: BaseException) -> Mismatch:
    """What an exception on the way to a device means."""
    text = _text(error)
    known = _known(device, text)
    cause, remedy = words.MISMATCHES[known] if known else words.unknown_mismatch(text)
    return Mismatch(device, cause, remedy, text)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _known(device: str, text: str) -> str | None:
    """The cause behind an exception of this text, if there is one known."""
    for known_device, pattern, cause in _KNOWN:
        if known_device == device and re.search(pattern, text, re.IGNORECASE):
            return cause
    return None
