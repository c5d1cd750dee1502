"""Words: what the choice of a device and its checks say in sentences, by their causes.

No byte of training depends on a sentence: no artefact's identity covers this module, rewording retrains nothing.
"""

from collections.abc import Iterable

_CPU_INSTEAD = "or choose another device with [Train] device"

# Cause of a mismatch → what happened, and the remedy.
MISMATCHES = {
    "tpu_build": (
        "This build of TensorFlow has no TPU support.",
        f"On a TPU host install TensorFlow's TPU build (tensorflow-tpu) with libtpu, {_CPU_INSTEAD}.",
    ),
    "tpu_packages": (
        "Packages that TensorFlow and the TPU runtime share do not fit together (ml_dtypes, JAX, NumPy).",
        "Install the locked versions into a fresh environment (make clean setup), without packages of your own in it.",
    ),
    "tpu_permission": (
        "This user may not open the TPU's device files (/dev/vfio or /dev/accel).",
        "Add the user to the group that owns them, or run as one that may; in a container, pass the devices on.",
    ),
    "tpu_metadata": (
        "The metadata server, which tells a TPU's host of its place among the others, does not answer.",
        "Run on the TPU VM itself with its metadata server reachable; TPU_SKIP_MDS_QUERY=1 with the topology's own "
        f"variables does without it, {_CPU_INSTEAD}.",
    ),
    "tpu_in_use": (
        "Another process holds the TPU: libtpu lets one process use it at a time.",
        "Wait for that process or end it, then run again.",
    ),
    "libtpu": (
        "The TPU's library libtpu could not be loaded.",
        f"Install libtpu on the TPU host, {_CPU_INSTEAD}.",
    ),
    "remote_files": (
        "A remote TPU node cannot read this machine's files.",
        f"Run on the TPU's own host, {_CPU_INSTEAD}.",
    ),
    "tpu_unnamed": (
        "No TPU is named, and this machine does not announce one.",
        f"Set [Train] tpu_address (or TPU_NAME) to a name, grpc://host:port or local, {_CPU_INSTEAD}.",
    ),
    "tpu_client": (
        "TensorFlow can look up a TPU by name only with Google's API client, which is not installed.",
        "Give [Train] tpu_address as grpc://host:port or local, or install cloud-tpu-client.",
    ),
    "tpu_not_ready": (
        "The TPU is there and not ready yet.",
        "Wait until its state is READY, then run again.",
    ),
    "tpu_name": (
        "The name of the TPU could not be resolved to an address.",
        "Check [Train] tpu_address, tpu_zone and tpu_project, or give the address itself as grpc://host:port.",
    ),
    "tpu_unreachable": (
        "The TPU's address does not answer.",
        "Check that the TPU node is running and that this machine may reach host and port of [Train] tpu_address.",
    ),
    "tpu_absent": (
        "The resolver answered, but there is no TPU behind it.",
        f"Run on a TPU host, {_CPU_INSTEAD}.",
    ),
    "gpu_build": (
        "This build of TensorFlow has no GPU support.",
        f"Install the GPU build with make setup EXTRA=gpu, {_CPU_INSTEAD}.",
    ),
    "gpu_driver": (
        "This machine shows no NVIDIA driver, and so no GPU.",
        f"Run on a machine whose nvidia-smi lists a GPU, {_CPU_INSTEAD}.",
    ),
    "gpu_jax": (
        "The driver is there, but JAX sees no GPU: its CUDA plugin is missing or could not be loaded.",
        f"Install it with make setup EXTRA=jax-gpu and check CUDA_VISIBLE_DEVICES, {_CPU_INSTEAD}.",
    ),
    "gpu_libraries": (
        "The driver is there, but TensorFlow could not load its CUDA libraries or use the card.",
        f"Install the GPU build with make setup EXTRA=gpu and check CUDA_VISIBLE_DEVICES, {_CPU_INSTEAD}.",
    ),
}


def unknown_mismatch(error: str) -> tuple[str, str]:
    """What happened, and the remedy, where only the exception's text is known."""
    return (
        f"It could not be initialised, for a reason not known here: {error}",
        f"See the message, {_CPU_INSTEAD}.",
    )


def mismatch(device: str, cause: str, remedy: str) -> str:
    """A mismatch as one message."""
    return f"[Train] device: {device} was requested. {cause} {remedy}"


def requested(device: str) -> str:
    """Why this device: the setting names it."""
    return f"[Train] device = {device}"


def auto_tpu(*, name: str | None = None, chips: Iterable[str] = ()) -> str:
    """Why "auto" chose a TPU: the environment names it, or chips were found."""
    chips = list(chips)
    return f"auto: TPU_NAME is {name}" if name else f"auto: on the PCI bus {len(chips)} × {chips[0]}"


def auto_without_tpu(num_gpus: int, backend: str) -> str:
    """Why "auto" chose a GPU, or the CPU where there is none."""
    gpus = f"{num_gpus} GPU" if num_gpus else "no GPU"
    return f"auto: TPU_NAME is not set, no TPU on the PCI bus, {gpus} listed by {backend}"


def fallback(reason: str, unavailable: str, instead: str) -> str:
    """Why a run fell back, after ``reason``, the one for the device that is unavailable."""
    return f"{reason}; {unavailable} is unavailable, {instead} instead"


def wrong_kind(what: str, effective: str, seen: Iterable[str]) -> str:
    """A failed check: variables or computations on another kind of device."""
    return f"{what}: expected {effective}, seen {', '.join(sorted(seen))}"


def wrong_number(what: str, expected: int, seen: int) -> str:
    """A failed check: more or fewer devices than replicas."""
    return f"{what}: expected {expected} devices, seen {seen}"


def as_fast_as_host(effective: str, ratio: float) -> str:
    """A failed check: an accelerator with the speed of its host."""
    return f"probe: {effective} computes {ratio:.2f} times as fast as its host's CPU: it may be that CPU"


def of_process(number: int, doubt: str) -> str:
    """A doubt of one of several processes."""
    return f"process {number}: {doubt}"
