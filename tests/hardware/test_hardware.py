"""The receipt: what was seen, and that it would be false if placement lied."""

import json
import random
import subprocess
import sys
import time
import types

import pytest

from pipeline import machine
from pipeline.hardware.placement import choose_jit_compile, choose_precision, first_present, place
from pipeline.hardware.receipt import confirm, find_failed_checks, write_receipt
from pipeline.settings.training import TrainSettings


def setup_module() -> None:
    global Placement, receipt_module, tensorflow, tf
    import tensorflow as tf

    from pipeline.hardware import receipt as receipt_module
    from pipeline.hardware import tensorflow
    from pipeline.hardware.placement import Placement


CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"


@pytest.fixture
def no_gpu() -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("this machine has a GPU")


def speeds_of(matmul, convolution):
    return {"matmul_times_host": matmul, "convolution_times_host": convolution}


GPU_SPEED = speeds_of(matmul=50.0, convolution=20.0)


def posing(strategy, device="gpu"):
    """A placement that calls its devices another kind than they are."""
    how = {"runtime": tensorflow.RUNTIME, "strategy": strategy, "num_replicas": 1}
    return Placement(**how, requested_device=device, effective_device=device)


@pytest.fixture(scope="module")
def on_cpu():
    settings = TrainSettings(device="cpu")
    placement = place(settings)
    return placement, write_receipt(settings, placement, "float32")


def test_cpu_is_seen_to_compute(on_cpu):
    placement, receipt = on_cpu
    assert (placement.requested_device, placement.effective_device, placement.num_replicas) == ("cpu", "cpu", 1)
    assert receipt["device_verified"] is True
    assert receipt["failed_checks"] == []
    assert receipt["placement"] == {"variable_devices": [CPU], "computation_devices": [CPU], "observed": "probe"}
    assert receipt["mismatch"] is None
    assert receipt["device_reason"] == "[Train] device = cpu"
    assert "cores" in receipt["device_name"]


def test_a_receipt_is_plain_data_and_names_what_shapes_speed(on_cpu):
    receipt = json.loads(json.dumps(on_cpu[1]))
    assert receipt["requested"]["device"] == "cpu"
    assert receipt["versions"]["tensorflow"] == tf.__version__
    assert receipt["host"]["granted_cores"] >= 1
    assert receipt["host"]["granted_memory_bytes"] <= receipt["host"]["memory_bytes"]
    for operation in ("matmul", "convolution"):
        # Between a pocket calculator and the fastest accelerator there is.
        assert 1e7 < receipt["probe"][f"{operation}_flops_per_second"] < 1e16


def test_a_strategy_that_computes_elsewhere_is_not_verified(monkeypatch):
    # The names alone are enough here: the matrices may be small.
    monkeypatch.setattr(receipt_module, "_SIDE_ON_ACCELERATOR", 64)
    monkeypatch.setattr(receipt_module, "_SECONDS", 0.001)
    # A "GPU" whose strategy computes on the CPU is what the tutorials' TPU runtime was.
    lying = posing(tf.distribute.OneDeviceStrategy("/cpu:0"))
    receipt = write_receipt(TrainSettings(device="gpu"), lying, "float32")
    assert receipt["device_verified"] is False
    assert "variable_devices: expected gpu, seen cpu" in receipt["failed_checks"]


def test_a_train_function_that_runs_elsewhere_than_the_probe_is_not_verified(on_cpu):
    receipt = on_cpu[1]
    assert confirm(receipt, []) == receipt
    seen = confirm(receipt, [CPU])
    assert (seen["device_verified"], seen["placement"]["observed"]) == (True, "train_function")
    elsewhere = confirm(receipt, [CPU, GPU])
    assert elsewhere["device_verified"] is False
    assert elsewhere["failed_checks"] == ["computation_devices: expected cpu, seen cpu, gpu"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_gpu")
def test_names_that_lie_are_found_out_by_the_time_it_takes(monkeypatch, on_cpu):
    # Every name says GPU; what is timed is the host's CPU, and the host's CPU is no faster than itself.
    seen = {"variable_devices": [GPU], "computation_devices": [GPU]}
    monkeypatch.setattr(tensorflow.TensorFlow, "observe", lambda *_: seen)
    # The CPU's own time: the tests beside this one are not to decide.
    monkeypatch.setattr(receipt_module, "time", types.SimpleNamespace(perf_counter=time.process_time))
    monkeypatch.setattr(receipt_module, "_SIDE_ON_ACCELERATOR", 1_024)
    lying = posing(on_cpu[0].strategy)
    receipt = write_receipt(TrainSettings(device="gpu"), lying, "float32")
    assert receipt["device_verified"] is False
    assert [failed_check.split(":")[0] for failed_check in receipt["failed_checks"]] == ["probe"]


@pytest.mark.parametrize(
    ("effective", "replicas", "variables", "computations", "speeds", "failed_checks"),
    [
        ("cpu", 1, [CPU], [CPU], None, []),
        ("gpu", 1, [GPU], [GPU], GPU_SPEED, []),
        ("gpu", 1, [GPU], [CPU], GPU_SPEED, ["computation_devices: expected gpu, seen cpu"]),
        ("gpu", 1, [CPU], [GPU], GPU_SPEED, ["variable_devices: expected gpu, seen cpu"]),
        ("gpu", 1, [GPU], [GPU, CPU], GPU_SPEED, ["computation_devices: expected gpu, seen cpu, gpu"]),
        ("gpu", 2, [GPU, GPU], [GPU], GPU_SPEED, ["variable_devices: expected 2 devices, seen 1",
                                                "computation_devices: expected 2 devices, seen 1"]),
        ("tpu", 1, [GPU], [GPU], GPU_SPEED, ["variable_devices: expected tpu, seen gpu",
                                           "computation_devices: expected tpu, seen gpu"]),
        ("cpu", 1, [""], [CPU], None, ["variable_devices: expected cpu, seen none"]),
    ],
)  # fmt: skip
def test_each_kind_of_doubt(effective, replicas, variables, computations, speeds, failed_checks):
    seen = {"variable_devices": variables, "computation_devices": computations}
    assert find_failed_checks(effective, replicas, seen, speeds) == failed_checks


# Times as fast as its host. A T4 (8.1 TFLOP/s on paper, 4 to 5 when warm) beside 64 cores; a card beside a server's
# matrix units; and the host as its own "accelerator", under load.
@pytest.mark.parametrize(
    ("speeds", "near"),
    [
        (speeds_of(matmul=1.67, convolution=3.0), None),
        (speeds_of(matmul=1.0, convolution=3.0), None),
        (speeds_of(matmul=0.13, convolution=0.38), None),
        (speeds_of(matmul=0.98, convolution=1.0), "0.99"),
        (speeds_of(matmul=1.43, convolution=0.86), "1.11"),
        (speeds_of(matmul=0.63, convolution=1.1), "0.83"),
    ],
    ids=["t4-64-cores", "t4-equal-in-one", "slower-than-its-host", "itself", "itself-loaded", "itself-loaded-2"],
)
def test_only_an_accelerator_about_as_fast_as_its_host_in_all_that_is_timed_may_be_the_host(speeds, near):
    seen = {"variable_devices": [GPU], "computation_devices": [GPU]}
    failed_checks = find_failed_checks("gpu", 1, seen, speeds)
    expected = [f"probe: gpu computes {near} times as fast as its host's CPU and may be that CPU"] if near else []
    assert failed_checks == expected


class BusyMachine:
    """A clock, and computations that take ``slower`` times as long while other work is there, which comes and goes."""

    def __init__(self, seed, busy, idle, slower):
        self.now, self.random, self.slower = 0.0, random.Random(seed), slower
        self.means = {True: busy, False: idle}
        self.is_busy = self.random.random() < busy / (busy + idle)
        self.until = self.now + self._while()

    def _while(self):
        return self.random.expovariate(1 / self.means[self.is_busy])

    def perf_counter(self):
        return self.now

    def compute(self, seconds):
        while seconds > 0:
            pace = self.slower if self.is_busy else 1.0
            part = min(seconds * pace, self.until - self.now)
            self.now, seconds = self.now + part, seconds - part / pace
            if self.now >= self.until:
                self.is_busy = not self.is_busy
                self.until = self.now + self._while()

    def computations(self, device, side, precision):
        # As long as on two cores. Hosts of 16 take a tenth, and less can happen meanwhile.
        return {"matmul": lambda: self.compute(0.45), "convolution": lambda: self.compute(0.01)}


@pytest.mark.parametrize("load", [(1, 1, 2), (3, 1, 3), (3, 0.3, 4), (10, 1, 4)])
def test_a_host_that_poses_is_found_out_while_other_work_comes_and_goes(monkeypatch, load):
    # By the fastest of four turns of each, as once compared, 1, 12, 44 and 27 % of a thousand such lies were verified.
    seen = {"variable_devices": [GPU], "computation_devices": [GPU]}
    verified = 0
    for seed in range(200):
        busy = BusyMachine(seed, *load)
        monkeypatch.setattr(receipt_module, "time", busy)
        verified += not find_failed_checks("gpu", 1, seen, receipt_module.measure(busy, "gpu", "float32"))
    assert verified == 0


@pytest.mark.slow
def test_every_replica_is_seen_on_a_device_of_its_own():
    # In a process of its own: logical devices are laid out once.
    code = (
        "from pipeline.settings.training import TrainSettings\n"
        "from pipeline.hardware.placement import place\n"
        "from pipeline.hardware.receipt import write_receipt\n"
        "settings = TrainSettings(device='cpu', replicas=3, global_batch_size=129)\n"
        "receipt = write_receipt(settings, place(settings), 'float32')\n"
        "devices = set(receipt['placement']['computation_devices'])\n"
        "print(receipt['device_verified'], receipt['num_replicas'], len(devices))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True 3 3", done.stderr


# Files under /sys/bus/pci/devices as Linux shows them: vendor, device, class.
GVNIC, GOOGLE_DISK = ("0x1ae0", "0x0042", "0x020000"), ("0x1ae0", "0x001f", "0x010802")
INTEL_NPU, AMD_NPU = ("0x8086", "0x7d1d", "0x120000"), ("0x1022", "0x1502", "0x118000")
HABANA, QUALCOMM = ("0x1da3", "0x1020", "0x120000"), ("0x17cb", "0xa100", "0x120000")
NVIDIA = ("0x10de", "0x2331", "0x030200")


@pytest.fixture
def computer(tmp_path, monkeypatch):
    """A function that puts devices on the PCI bus and files into /dev, of a tree of its own."""

    def build(devices, files=()):
        for slot, parts in enumerate(devices):
            folder = tmp_path / "sys" / "bus" / "pci" / "devices" / f"0000:00:{slot:02x}.0"
            folder.mkdir(parents=True)
            for name, text in zip(("vendor", "device", "class"), parts, strict=True):
                (folder / name).write_text(f"{text}\n")
        for name in files:
            (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "dev" / name).touch()
        path = type(tmp_path)
        monkeypatch.setattr(machine, "_PCI_DEVICES", tmp_path / "sys" / "bus" / "pci" / "devices")
        # Whoever looks into /dev finds the tree's.
        monkeypatch.setattr(machine, "Path", lambda name: path(f"{tmp_path}{name}") if name == "/dev" else path(name))
        monkeypatch.setattr(tensorflow, "Path", machine.Path)

    return build


@pytest.mark.parametrize(
    ("devices", "files", "chips"),
    [
        ([GVNIC, GOOGLE_DISK, *[("0x1ae0", "0x0027", "0xff0000")] * 4], ["accel0", "accel1", "accel2", "accel3"],
         ["TPU v2 or v3"] * 4),
        ([GVNIC, ("0x1ae0", "0x005e", "0x120000")], ["accel0"], ["TPU v4"]),
        ([GVNIC, ("0x1ae0", "0x0063", "0x120000")], ["vfio/0", "vfio/vfio"], ["TPU v5e"]),
        ([GVNIC, *[("0x1ae0", "0x0062", "0x120000")] * 4], ["vfio/0", "vfio/1", "vfio/2", "vfio/3", "vfio/vfio"],
         ["TPU v5p"] * 4),
        ([GVNIC, ("0x1ae0", "0x006f", "0x120000")], ["vfio/0", "vfio/vfio"], ["TPU v6e"]),
        ([GVNIC, ("0x1ae0", "0x0099", "0x120000")], ["vfio/0", "vfio/vfio"], ["TPU 0x0099"]),
    ],
    ids=["v2-v3", "v4", "v5e", "v5p", "v6e", "later"],
)  # fmt: skip
def test_a_tpu_is_known_by_its_pci_ids_wherever_its_device_files_are(computer, devices, files, chips):
    computer(devices, files)
    assert machine.tpu_chips() == chips
    assert machine.describe()["accelerators"][-len(chips) :] == chips
    assert first_present(tensorflow.RUNTIME) == ("tpu", f"auto: {len(chips)} × {chips[0]} on the PCI bus")


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("devices", "files"),
    [
        ([INTEL_NPU], ["accel/accel0"]),
        ([AMD_NPU], ["accel/accel0"]),
        ([HABANA] * 8, [f"accel/accel{index}" for index in range(8)]),
        ([QUALCOMM], ["accel/accel0"]),
        ([GVNIC, GOOGLE_DISK], []),
        # A card lent to a virtual machine.
        ([GVNIC, NVIDIA], ["vfio/12", "vfio/vfio"]),
        ([], []),
    ],
    ids=["intel", "amd", "habana", "qualcomm", "cloud", "passed-through", "none"],
)
def test_other_devices_are_not_mistaken_for_a_tpu(computer, devices, files):
    computer(devices, files)
    assert machine.tpu_chips() == []
    placement = place(TrainSettings(device="auto"))
    assert (placement.effective_device, placement.mismatch) == ("cpu", None)
    assert placement.requested_device == "auto"
    assert placement.device_reason == "auto: no TPU on the PCI bus, no GPU listed by TensorFlow"


@pytest.mark.parametrize(
    ("flags", "onednn", "expected"),
    [
        ({"avx2"}, "1", "float32"),
        ({"avx2", "avx512_bf16"}, "1", "bfloat16"),
        ({"amx_bf16"}, "1", "bfloat16"),
        ({"avx512_bf16"}, "0", "float32"),
    ],
)
def test_auto_precision_follows_the_processor(monkeypatch, flags, onednn, expected):
    monkeypatch.setattr(machine, "cpu_flags", lambda: flags)
    monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", onednn)
    on_cpu = posing(None, "cpu")
    assert choose_precision("auto", on_cpu) == expected
    assert choose_precision("float32", on_cpu) == "float32"
    assert choose_precision("auto", on_cpu, lambda: False) == expected
    assert choose_precision("auto", on_cpu, lambda: True) == "float32"
    assert choose_precision("bfloat16", on_cpu, lambda: True) == "bfloat16"


def test_auto_jit_compile_is_off_on_a_cpu():
    assert choose_jit_compile("auto", posing(None, "cpu")) is False
    assert choose_jit_compile("auto", posing(None, "gpu")) is True
    assert choose_jit_compile("true", posing(None, "cpu")) is True
