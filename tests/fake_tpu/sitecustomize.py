"""Found by Python before anything else runs where its folder is on PYTHONPATH: a TPU that comes and goes.

It is there while the file named by FAKE_TPU is: TensorFlow's initialization then answers as on a TPU's
host, and the CPU computes. Where the file is not, it answers as on a host without one.
"""

import importlib
import importlib.abc
import os
import sys
from pathlib import Path
from types import SimpleNamespace


class _BeforeTheImportOf(importlib.abc.MetaPathFinder):
    """Runs a function each when a module is first imported."""

    def __init__(self, functions):
        self.functions = functions

    def find_spec(self, name, path=None, target=None):
        if name in self.functions:
            self.functions.pop(name)()


def _pretend():
    import tensorflow as tf

    list_logical_devices = tf.config.list_logical_devices

    # A class: Keras asks whether a strategy is an instance of it.
    class FakeStrategy(tf.distribute.OneDeviceStrategy):
        def __init__(self, resolver):
            super().__init__("/cpu:0")

    def initialize(resolver):
        if not Path(os.environ["FAKE_TPU"]).exists():
            raise tf.errors.NotFoundError(None, None, "TPUs not found in the cluster.")
        return SimpleNamespace(mesh_shape=[1, 1, 1, 1], num_tasks=1, num_tpus_per_task=1)

    def list_devices(kind=None):
        return [tf.config.LogicalDevice("/device:TPU:0", "TPU")] if kind == "TPU" else list_logical_devices(kind)

    tf.tpu.experimental.initialize_tpu_system = initialize
    tf.config.list_logical_devices = list_devices
    tf.distribute.TPUStrategy = FakeStrategy


def _time_little():
    # A CPU needs long for the matrices of an accelerator.
    importlib.import_module("pipeline.hardware.probe")._SIDE_ON_ACCELERATOR = 256


_HOOKS = {"pipeline.hardware.tensorflow": _pretend, "pipeline.hardware.receipt": _time_little}
sys.meta_path.insert(0, _BeforeTheImportOf(_HOOKS))
