"""The receipt of a run on JAX: what was seen, and that it would be false if placement lied."""

import json
import subprocess
import sys

import pytest

# Of Keras a process has one backend, and of JAX one layout of the CPU. Deterministic: XLA ends a process at a flag that
# it does not know.
PLACED = """
import json, os
os.environ["KERAS_BACKEND"] = "jax"
from pipeline.hardware.placement import place
from pipeline.hardware.receipt import write_receipt
from pipeline.settings.training import TrainSettings
from pipeline.hardware import jax, receipt
settings = TrainSettings(
    backend="jax", device="cpu", replicas={replicas}, global_batch_size=128, deterministic="true"
)
placement = place(settings)
receipts = [write_receipt(settings, placement, "float32")]
{more}
print(json.dumps(receipts))
"""
# Two CPUs that pose as an accelerator. Of the second every name says the accelerator too: only its speed is the host's.
POSING = """
import dataclasses, time, types
devices, names = jax._devices, jax._names
jax._devices = lambda device: devices("cpu")
receipt._SIDE_ON_ACCELERATOR = 1024
# The CPU's own time: the tests beside this one are not to decide.
receipt.time = types.SimpleNamespace(perf_counter=time.process_time)
for device in ("gpu", "tpu"):
    posing = dataclasses.replace(placement, effective_device=device)
    for jax._names in (names, lambda devices: [device + ":0"]):
        receipts.append(write_receipt(settings, posing, "float32"))
"""


def receipts_of(replicas: int, more: str = "") -> list[dict]:
    code = PLACED.format(replicas=replicas, more=more)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def assert_seen(receipt: dict, replicas: int) -> None:
    names = [f"cpu:{number}" for number in range(replicas)]
    assert (receipt["device_verified"], receipt["failed_checks"]) == (True, [])
    assert receipt["placement"] == {"variable_devices": names, "computation_devices": names, "observed": "probe"}
    assert receipt["num_replicas"] == replicas


@pytest.mark.slow
def test_a_cpu_that_poses_as_an_accelerator_is_not_verified():
    honest, *posing = receipts_of(replicas=1, more=POSING)
    assert_seen(honest, 1)
    assert [receipt["device_verified"] for receipt in posing] == [False] * 4
    for device, by_name, by_time in (("gpu", *posing[:2]), ("tpu", *posing[2:])):
        assert f"variable_devices: expected {device}, seen cpu" in by_name["failed_checks"]
        assert f"computation_devices: expected {device}, seen cpu" in by_name["failed_checks"]
        assert [failed_check.split(":")[0] for failed_check in by_time["failed_checks"]] == ["probe"]
