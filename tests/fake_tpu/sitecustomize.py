"""Found by Python before anything else runs where its folder is on PYTHONPATH: a TPU that comes and goes.

It is there while the file named by FAKE_TPU is: the runtime of TensorFlow then places the run on it, and the CPU
computes. Where the file is not, the runtime answers as on a host without one.
"""

import importlib.abc
import os
import sys
from pathlib import Path


class _BeforeTheImportOf(importlib.abc.MetaPathFinder):
    """Runs a function each when a module is first imported."""

    def __init__(self, functions):
        self.functions = functions

    def find_spec(self, name, path=None, target=None):
        if name in self.functions:
            self.functions.pop(name)()


def _pretend():
    import tensorflow as tf

    from pipeline.hardware import tensorflow as ours
    from pipeline.hardware.runtime import explain

    place_on, list_logical_devices = ours.TensorFlow.place_on, tf.config.list_logical_devices

    def fake(self, device, settings):
        if device != "tpu":
            return place_on(self, device, settings)
        if not Path(os.environ["FAKE_TPU"]).exists():
            raise explain("tpu", RuntimeError("no TPU devices"))
        # A CPU needs long for the matrices of an accelerator.
        sys.modules["pipeline.hardware.receipt"]._SIDE_ON_ACCELERATOR = 256
        return {"strategy": tf.distribute.OneDeviceStrategy("/cpu:0"), "num_replicas": 1}

    def list_devices(kind=None):
        return [tf.config.LogicalDevice("/device:TPU:0", "TPU")] if kind == "TPU" else list_logical_devices(kind)

    tf.config.list_logical_devices = list_devices
    ours.TensorFlow.place_on = fake


_HOOKS = {"pipeline.hardware.receipt": _pretend}
sys.meta_path.insert(0, _BeforeTheImportOf(_HOOKS))
