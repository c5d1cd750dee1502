"""The receipt of a run on JAX: what was seen, and that it would be false if placement lied."""

import json
import subprocess
import sys

import pytest

# Of Keras a process has one backend, and of JAX one layout of the CPU.
SEEN = """
import json, os
os.environ["KERAS_BACKEND"] = "jax"
from pipeline import hardware
from pipeline.config import TrainSettings
from pipeline.hardware import jax, probe
settings = TrainSettings(backend="jax", device="cpu", replicas={replicas}, global_batch_size=128)
placement = hardware.place(settings)
{lie}
receipt = hardware.write_receipt(settings, placement, "float32")
print(json.dumps(receipt.to_json()))
"""
POSE = (
    "import dataclasses, time, types\n"
    "placement = dataclasses.replace(placement, effective_device={device!r})\n"
    "devices = jax._devices\n"
    "jax._devices = lambda device: devices('cpu')\n"
    "probe._SIDE_ON_ACCELERATOR = 1024\n"
    # The CPU's own time: the tests beside this one are not to decide.
    "probe.time = types.SimpleNamespace(perf_counter=time.process_time)\n"
)
# Every name says the accelerator; what is timed is the host.
LIE_OF_NAMES = "jax._names = lambda devices: [{device!r} + ':0']\n"


def seen(replicas=1, lie=""):
    code = SEEN.format(replicas=replicas, lie=lie)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 4])
def test_each_replica_is_seen_on_a_device_of_its_own(replicas):
    receipt = seen(replicas)
    names = [f"cpu:{number}" for number in range(replicas)]
    assert (receipt["device_verified"], receipt["doubts"]) == (True, [])
    assert receipt["placement"] == {"variable_devices": names, "computation_devices": names, "observed": "probe"}
    assert receipt["num_replicas"] == replicas


@pytest.mark.slow
@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_a_cpu_that_poses_as_an_accelerator_is_not_verified(device):
    receipt = seen(lie=POSE.format(device=device))
    assert receipt["device_verified"] is False
    assert f"variable_devices: expected {device}, seen cpu" in receipt["doubts"]
    assert f"computation_devices: expected {device}, seen cpu" in receipt["doubts"]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["gpu", "tpu"])
def test_names_that_lie_are_found_out_by_the_time_it_takes(device):
    receipt = seen(lie=POSE.format(device=device) + LIE_OF_NAMES.format(device=device))
    assert receipt["device_verified"] is False
    assert [doubt.split(":")[0] for doubt in receipt["doubts"]] == ["probe"]
