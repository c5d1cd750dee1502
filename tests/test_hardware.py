import subprocess
import sys

import pytest
import tensorflow as tf

from pipeline import hardware
from pipeline.errors import HardwareMismatchError

no_gpu = pytest.mark.skipif(bool(tf.config.list_physical_devices("GPU")), reason="this machine has a GPU")


@pytest.fixture(scope="module")
def cpu():
    return hardware.place("cpu")


def test_cpu_is_seen_to_compute(cpu):
    assert (cpu.requested_device, cpu.effective_device, cpu.num_replicas) == ("cpu", "cpu", 1)
    assert cpu.device_verified is True
    assert "CPU" in cpu.evidence["variable_device"]
    assert "CPU" in cpu.evidence["computation_device"]
    assert "cores" in cpu.device_name


def test_a_placement_that_lies_is_not_verified(monkeypatch):
    # A "GPU" whose strategy computes on the CPU is what the tutorials' TPU runtime was.
    monkeypatch.setitem(hardware._STRATEGIES, "gpu", lambda: tf.distribute.OneDeviceStrategy("/cpu:0"))
    placement = hardware.place("gpu")
    assert placement.effective_device == "gpu"
    assert placement.device_verified is False


@no_gpu
def test_auto_takes_the_cpu_where_there_is_nothing_else(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    placement = hardware.place("auto")
    assert (placement.requested_device, placement.effective_device) == ("auto", "cpu")


@no_gpu
def test_a_missing_gpu_is_refused_with_a_remedy():
    with pytest.raises(HardwareMismatchError, match=r"gpu was requested.*make setup EXTRA=gpu"):
        hardware.place("gpu")


def test_a_missing_tpu_is_refused_although_the_resolver_answers():
    # In a process of its own: a failed initialisation leaves TensorFlow's context in a state of its own.
    code = "from pipeline import hardware; hardware.place('tpu')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "HardwareMismatchError: [Train] device: tpu was requested" in done.stderr


@pytest.mark.parametrize(
    ("flags", "onednn", "expected"),
    [
        ({"avx2"}, "1", "float32"),
        ({"avx2", "avx512_bf16"}, "1", "bfloat16"),
        ({"amx_bf16"}, "1", "bfloat16"),
        ({"avx512_bf16"}, "0", "float32"),
    ],
)
def test_auto_precision_follows_the_processor(cpu, monkeypatch, flags, onednn, expected):
    monkeypatch.setattr(hardware, "_cpu_flags", lambda: flags)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
    assert hardware.choose_precision("auto", cpu) == expected
    assert hardware.choose_precision("float32", cpu) == "float32"


def test_auto_jit_compile_is_off_on_a_cpu(cpu):
    assert hardware.choose_jit_compile("auto", cpu) is False
    assert hardware.choose_jit_compile("true", cpu) is True
