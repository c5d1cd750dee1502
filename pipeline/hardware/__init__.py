"""Hardware: a requested device becomes a placement on a backend's devices, and a receipt says what was really used.

Beside the data's way, between stream and training. Requested and effective are two things: a resolver that answers is
no proof of a TPU, and a strategy that exists is no proof of anything.

    backend.py      TensorFlow or JAX
    runtime.py      what training asks of either
    placement.py    where a run is to compute, and why there
    tensorflow.py   TensorFlow's devices, by tf.distribute
    jax.py          JAX's devices
    tpu_vm.py       which of the machines that share a TPU this is
    mismatch.py     an exception → cause and remedy in words
    probe.py        how fast a device computes
    flags.py        environment variables that change how a network is computed
    receipt.py      all of it as plain data, and whether the device is verified
    precision.py    the rules behind precision = auto and jit_compile = auto

``python -m pipeline.hardware`` asks whether a device is there, in a process of its own.
"""

from pipeline.hardware.backend import choose_backend
from pipeline.hardware.placement import Placement, place
from pipeline.hardware.precision import choose_jit_compile, choose_precision
from pipeline.hardware.receipt import Receipt, confirm, seen_here, with_processes, write_receipt
from pipeline.hardware.runtime import Runtime

__all__ = [
    "Placement",
    "Receipt",
    "Runtime",
    "choose_backend",
    "choose_jit_compile",
    "choose_precision",
    "confirm",
    "place",
    "seen_here",
    "with_processes",
    "write_receipt",
]
