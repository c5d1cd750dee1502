"""A device that is not there: each known failure is explained with a remedy, and none passes for success."""

import pytest

from pipeline.errors import HardwareMismatchError, SettingsError
from pipeline.hardware.runtime import explain
from pipeline.settings.training import TrainSettings
from pipeline.stage_process import in_child


def setup_module() -> None:
    global place, placement, tf
    import tensorflow as tf

    from pipeline.hardware import placement
    from pipeline.hardware.placement import place


@pytest.fixture
def no_accelerator() -> None:
    if any(device.device_type != "CPU" for device in tf.config.list_physical_devices()):
        pytest.skip("this machine has an accelerator")


# Device, exception as the libraries raise it, words of the cause and the remedy.
FAILURES = [
    ("tpu", RuntimeError("TensorFlow has no TPU support"), "TensorFlow has no TPU support", "backend = jax"),
    ("tpu", RuntimeError("no TPU devices"), "lists no TPU", "TPU host"),
    ("tpu", ImportError("libtpu.so: cannot open shared object file"), "libtpu could not be loaded", "Install libtpu"),
    ("tpu", RuntimeError("The TPU is already in use by process with pid 4711. Not attempting to load libtpu.so"),
     "Another process uses the TPU", "end it"),
    ("tpu", AttributeError("module 'ml_dtypes' has no attribute 'float4'"), "different versions", "fresh environment"),
    ("tpu", ImportError("jaxlib is version 0.4.1, but this version of jax requires 0.7"), "different", "make clean"),
    ("tpu", RuntimeError("Unable to initialize backend 'tpu': open(/dev/vfio/0): Permission denied"),
     "cannot open", "group that owns them"),
    ("tpu", RuntimeError("Failed to get TPU metadata (tpu-env) from instance metadata for variable TPU_TOPOLOGY"),
     "metadata server", "TPU VM"),
    ("tpu", RuntimeError("Unable to initialize backend 'tpu': INTERNAL: Failed to get global TPU topology: libtpu "
                         "version 0.0.7 is too old"), "libtpu", "libtpu"),
    ("tpu", RuntimeError("Unknown backend: 'tpu' requested, but no platforms that are instances of tpu are present."),
     "lists no TPU", "TPU host"),
    ("gpu", RuntimeError("Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present."),
     "JAX sees no GPU", "EXTRA=jax-gpu"),
    ("gpu", RuntimeError("TensorFlow is built without CUDA"), "no GPU support", "make setup EXTRA=gpu"),
    ("gpu", RuntimeError("no driver"), "no NVIDIA driver", "nvidia-smi"),
    ("gpu", RuntimeError("TensorFlow sees none"), "could not load its CUDA libraries", "CUDA_VISIBLE_DEVICES"),
]  # fmt: skip


@pytest.mark.parametrize(("device", "error", "cause", "remedy"), FAILURES, ids=lambda value: str(value)[:40])
def test_a_known_failure_is_explained(device, error, cause, remedy):
    mismatch = explain(device, error).mismatch
    assert cause in mismatch["cause"]
    assert remedy in mismatch["remedy"]
    assert str(error) in mismatch["error"]
    assert "Cloud Storage" not in mismatch["remedy"], "the storage root is a folder on this machine"


def test_an_unknown_failure_is_quoted_whole():
    mismatch = explain("tpu", RuntimeError("the moon is in the wrong place")).mismatch
    assert "RuntimeError: the moon is in the wrong place" in mismatch["cause"]
    assert "[Train] device" in mismatch["remedy"]


@pytest.mark.parametrize("bug", [TypeError, AttributeError, KeyError, ValueError, RuntimeError, OSError])
@pytest.mark.parametrize("on_mismatch", ["fail", "fallback", "skip"])
def test_a_bug_on_the_way_to_a_device_stays_a_bug(monkeypatch, bug, on_mismatch):
    def fail(*_):
        raise bug("ours")

    monkeypatch.setattr(tf.config, "list_logical_devices", fail)
    with pytest.raises(bug, match="ours"):
        place(TrainSettings(device="gpu", on_mismatch=on_mismatch))


def test_unknown_errors_of_operations_on_the_way_to_a_gpu_count(monkeypatch):
    def fail(*_):
        raise tf.errors.InternalError(None, None, "the moon is in the wrong place")

    monkeypatch.setattr(tf.config, "list_logical_devices", fail)
    with pytest.raises(HardwareMismatchError, match="the moon is in the wrong place"):
        place(TrainSettings(device="gpu"))


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_a_fallback_says_what_it_is(device):
    placed = place(TrainSettings(device=device, on_mismatch="fallback"))
    assert (placed.requested_device, placed.effective_device) == (device, "cpu")
    assert placed.mismatch["device"] == device
    assert placed.mismatch["cause"]
    assert placed.device_reason == f"[Train] device = {device}, but {device} is unavailable. Using cpu"


def test_a_tpu_that_tensorflow_cannot_use_is_no_absent_tpu(monkeypatch):
    for chips, cause in (["TPU v5e"], "TensorFlow has no TPU support"), ([], "lists no TPU"):
        monkeypatch.setattr("pipeline.machine.tpu_chips", lambda chips=chips: chips)
        with pytest.raises(HardwareMismatchError, match=cause):
            place(TrainSettings(device="tpu", backend="tensorflow"))


@pytest.mark.parametrize("usable", ["gpu", "cpu"])
def test_a_fallback_from_a_tpu_is_the_gpu_if_the_backend_can_use_it(monkeypatch, usable):
    from pipeline.hardware.jax import Jax

    def place_on(_, device, settings):
        if device in ("cpu", usable):
            return {"strategy": (), "num_replicas": 1}
        raise explain(device, RuntimeError(f"no platforms that are instances of {device} are present"))

    monkeypatch.setattr("pipeline.machine.nvidia_cards", lambda: ["a card"])
    monkeypatch.setattr(Jax, "place_on", place_on)
    placed = place(TrainSettings(device="tpu", backend="jax", on_mismatch="fallback"), Jax())
    assert (placed.effective_device, placed.mismatch["device"]) == (usable, "tpu")
    assert placed.device_reason.endswith(f", but tpu is unavailable. Using {usable}")


@pytest.mark.usefixtures("no_accelerator")
def test_a_tpu_that_is_announced_and_not_there_is_no_cpu_by_silence(monkeypatch):
    monkeypatch.setattr(placement, "first_present", lambda _: ("tpu", "a chip"))
    with pytest.raises(HardwareMismatchError):
        place(TrainSettings(device="auto"))


@pytest.mark.parametrize("device", ["gpu", "tpu"])
@pytest.mark.parametrize("on_mismatch", ["fail", "fallback", "skip"])
def test_replicas_with_an_accelerator_are_a_settings_error_before_any_device_request(device, on_mismatch):
    with pytest.raises(SettingsError, match=rf"\[Train\] replicas: expected 1 on {device} .* got 2"):
        TrainSettings(device=device, replicas=2, on_mismatch=on_mismatch)


def test_replicas_on_an_accelerator_that_auto_found_are_a_settings_error(monkeypatch):
    monkeypatch.setattr(placement, "first_present", lambda _: ("gpu", "it is there"))
    with pytest.raises(SettingsError, match=r"\[Train\] replicas: expected 1 on gpu"):
        place(TrainSettings(device="auto", replicas=2))


@pytest.mark.slow
@pytest.mark.usefixtures("no_accelerator")
def test_the_check_in_a_process_of_its_own_raises_its_error_here():
    job = {"settings": TrainSettings(device="gpu")}
    with pytest.raises(HardwareMismatchError) as raised:
        in_child("pipeline.hardware.receipt:require_device", job, in_new_process=True)
    assert str(raised.value).startswith("[Train] device: gpu was requested. This machine has no NVIDIA driver")
