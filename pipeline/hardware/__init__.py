"""Hardware: a requested device becomes a tf.distribute strategy, and a receipt says what was really used.

Beside the data's way, between stream and training. Requested and effective are two things: a resolver that answers is
no proof of a TPU, and a strategy that exists is no proof of anything.

    strategies.py   requested device → strategy, or why not
    mismatch.py     an exception → cause and remedy in words
    probe.py        where a variable lives and a computation runs, the train function's above all, and how fast
    receipt.py      all of it as plain data, and whether the device is verified
    precision.py    the rules behind precision = auto and jit_compile = auto

``python -m pipeline.hardware`` asks whether a device is there, in a process of its own.
"""

from pipeline.hardware.precision import choose_jit_compile, choose_precision
from pipeline.hardware.probe import observe_training
from pipeline.hardware.receipt import Receipt, confirm, write_receipt
from pipeline.hardware.strategies import Placement, explaining, place, split_cpu

__all__ = [
    "Placement",
    "Receipt",
    "choose_jit_compile",
    "choose_precision",
    "confirm",
    "explaining",
    "observe_training",
    "place",
    "split_cpu",
    "write_receipt",
]
